"""`prove train gate` on records of a known gate."""

import random
from pathlib import Path

from typer.testing import CliRunner

from prove_core.decoding.acceptance import Evidence
from prove_core.decoding.gate_file import read_gate
from prove_core.training.gate_records import BlockRecord, Candidate, write_records
from services.cli.main import app


def record(rng: random.Random, prompt: int) -> BlockRecord:
    """Candidates that are right when the verifier agrees, mostly."""
    agrees = [rng.random() < 0.5 for _ in range(3)]
    seen = [Evidence(rng.random(), rng.random(), each) for each in agrees]
    candidates = tuple(Candidate(each, each.agrees != (rng.random() < 0.1)) for each in seen)
    return BlockRecord(prompt, 9, candidates)


def test_the_fit_is_written_and_its_table_printed(tmp_path: Path) -> None:
    rng, records, out = random.Random(0), tmp_path / "records.jsonl", tmp_path / "gate.json"
    write_records(records, [record(rng, index // 4) for index in range(80)])
    result = CliRunner().invoke(app, ["train", "gate", "--records", str(records), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert read_gate(out).agrees > 1
    table = dict(line.rsplit(maxsplit=1) for line in result.stdout.splitlines())
    assert (table["blocks"], table["candidates"]) == ("80", "240")
    assert float(table["auc logistic"]) > 0.8
    assert float(table["auc logistic"]) > float(table["auc confidence"])
    assert f"gate_weights: {out}" in " ".join(result.stderr.split())


def test_bad_records_are_a_line(tmp_path: Path) -> None:
    arguments = ["train", "gate", "--records", str(tmp_path / "none.jsonl"), "--out", str(tmp_path / "gate.json")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "none.jsonl" in result.stderr
    assert "Traceback" not in result.output
