"""What these tests need: a CUDA device, and FlashInfer for it. Without, they are skipped, saying what is missing."""

from pathlib import Path
from typing import Any

import pytest
import torch

from prove_core.attention.flashinfer_support import import_flashinfer


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = None if torch.cuda.is_available() else "no CUDA device: torch.cuda.is_available() is False"
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if missing is not None:
                item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def flashinfer() -> Any:
    """The package."""
    try:
        return import_flashinfer()
    except ImportError as error:
        pytest.skip(f"flashinfer-python is not installed: {error}")
