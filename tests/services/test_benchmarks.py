"""Benchmarks run, and write what their readers expect. What they measure decides no test."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prove_core.types import Role
from services.benchmarks.cycle_probe import Probed
from services.benchmarks.overhead import null_engine, one_model
from services.benchmarks.overlap import _report
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


def test_metrics_have_a_cost(tmp_path: Path) -> None:
    report = run("metrics", "--null-only", "--repeats", "2", "--cycles", "10", "--json", tmp_path / "out.json")
    figures = report["figures"]
    assert isinstance(figures, dict)
    assert 0 < figures["metrics_us"] < 1e6


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


def test_overlap_is_judged_by_pairs_of_completions() -> None:
    def probed(seconds: float, proposing: tuple[int, float], ids: tuple[int, ...] = (1, 2, 3, 4)) -> Probed:
        passes, pass_seconds = proposing
        return Probed(
            ids,
            2,
            seconds,
            {Role.PROPOSER: passes, Role.VERIFIER: 2},
            {Role.PROPOSER: pass_seconds, Role.VERIFIER: 0.01},
        )

    results = {
        "sequential": [probed(0.06, (2, 0.04)), probed(0.08, (2, 0.04))],
        "overlapped": [probed(0.04, (2, 0.038)), probed(0.05, (3, 0.05), (1, 2, 3, 5))],
    }
    report = _report(results, {})
    assert report.ratios["sequential_vs_overlapped"] == pytest.approx(1.55)
    assert report.ratios["overlapped_vs_longer_model"] == pytest.approx((0.04 / 0.038 + 1) / 2)
    assert report.samples["foreseen_share"] == [1.0, 0.5]
    assert (report.figures["identical_texts"], report.figures["completions"]) == (1, 2)
    assert report.figures["tokens_per_cycle"] == 2
