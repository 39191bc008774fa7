"""`prove bench ranks` runs, with the other ranks in processes of their own. What it measures decides no test."""

import json
from pathlib import Path

from typer.testing import CliRunner

from services.cli.main import app
from tests.services.cli.chat_model import save_chat_model


def test_it_times_both_and_writes_the_report(tmp_path: Path) -> None:
    path = tmp_path / "ranks.json"
    arguments = ["--checkpoint", str(save_chat_model(tmp_path / "model")), "--json", str(path)]
    result = CliRunner().invoke(
        app, ["bench", "ranks", *arguments, "--dtype", "float32", "--context", "20", "--repeats", "3"]
    )
    assert result.exit_code == 0, result.output
    report = json.loads(path.read_text())
    assert report["config"]["ranks"] == 2
    for shape in ("ar", "window16", "propose8"):
        assert len(report["samples"][f"{shape}_single_ms"]) == len(report["samples"][f"{shape}_ranks_ms"]) == 3
        assert report["ratios"][f"{shape}_ranks_vs_single"] > 0
