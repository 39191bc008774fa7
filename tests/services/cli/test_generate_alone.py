"""`prove generate` with the configuration of a server that has more than this process."""

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from services.cli.main import app
from tests.services.cli.chat_model import save_chat_model


@pytest.mark.parametrize("ranks", [1, 2])
def test_one_process_runs_without_ranks_and_with_a_pool_of_its_own(tmp_path: Path, ranks: int) -> None:
    model = {"checkpoint": str(save_chat_model(tmp_path / "model")), "dtype": "float32", "device": "cpu"}
    role = {"tensor_parallel": ranks, "engine": {"model": model, "cache": {"tokens": "auto"}}}
    path = tmp_path / "prove.yaml"
    path.write_text(yaml.safe_dump({"proposer": role, "verifier": None}))
    result = CliRunner().invoke(
        app, ["generate", "hi", "--config", str(path), "--mode", "ar", "--max-tokens", "3", "--quiet"]
    )
    assert result.exit_code == 0, result.output
    assert ("tensor_parallel 2 is left out" in result.output) is (ranks == 2)
