"""Benchmarks run, and write what their readers expect. What they measure decides no test."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from services.benchmarks.overhead import null_engine, one_model
from services.cli.main import app

KEYS = {"name", "machine", "config", "samples", "figures", "ratios"}


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"question": "What is 2 plus 3?"}\n{"prompt": "Name a colour."}\n')
    return path


def run(*arguments: str | Path) -> dict[str, object]:
    """The report that a benchmark wrote."""
    report = Path(arguments[-1])
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    data: dict[str, object] = json.loads(report.read_text())
    assert set(data) == KEYS
    return data


def test_overhead_has_a_sample_per_cycle() -> None:
    samples = one_model(null_engine(), 20)
    assert len(samples) == 20
    assert min(samples) > 0


@pytest.mark.model
def test_exactness_writes_counts(prompts: Path, tmp_path: Path) -> None:
    arguments = ("--data", prompts, "--max-tokens", "8", "--block-size", "4", "--json", tmp_path / "out.json")
    assert run("exactness", *arguments)["figures"] == {"prompts": 2, "equal_b4": 2}


@pytest.mark.model
def test_prefix_writes_the_mean_and_the_curve(prompts: Path, tmp_path: Path) -> None:
    report = run(
        "prefix", "--data", prompts, "--max-tokens", "24", "--block-size", "4", "--json", tmp_path / "out.json"
    )
    figures, samples = report["figures"], report["samples"]
    assert isinstance(figures, dict)
    assert isinstance(samples, dict)
    assert 1 <= figures["prefix_mean"] <= 4
    assert len(samples["match_b4"]) == 3


def test_a_bad_prompt_file_is_one_line_on_stderr(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "exactness", "--data", str(tmp_path / "none.jsonl")])
    assert result.exit_code == 1
    assert "none.jsonl" in result.stderr
    assert "Traceback" not in result.output
