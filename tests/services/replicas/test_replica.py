"""How a replica builds its engine, without Ray."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from prove_core.model.threads import thread_choice
from services.config.settings import ModelSettings
from services.replicas.replica import _build
from tests.services.cli.chat_model import save_chat_model


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("threads", [None, 1])
def test_passes_choose_among_all_cores_unless_told_how_many(tmp_path: Path, threads: int | None) -> None:
    model = {"checkpoint": str(save_chat_model(tmp_path / "model")), "threads": threads}
    cores = len(os.sched_getaffinity(0))
    torch.set_num_threads(1)  # as under Ray, whose actors have OMP_NUM_THREADS
    engine = _build("verifier", ModelSettings.model_validate({"engine": {"model": model, "cache": {"tokens": 256}}}))
    engine.stop()
    assert torch.get_num_threads() == (cores if threads is None else threads)
    choice = engine._runner._threads  # type: ignore[attr-defined]
    assert choice == (thread_choice(cores) if threads is None else None)


def test_torch_is_not_imported_before_its_threads_are_told_how_to_wait() -> None:
    code = "import sys, services.replicas.replica; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
