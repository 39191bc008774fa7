"""`prove train gate` and `prove train calibration` on records of a known gate."""

import random
from pathlib import Path

import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from prove_core.decoding.acceptance import Evidence
from prove_core.decoding.gate_file import read_gate
from prove_core.model.adapters import AdapterKind, AdapterRecord, BaseRecord, read_adapter, save_adapter
from prove_core.training.gate_records import BlockRecord, Candidate, write_records
from services.cli.main import app


def record(rng: random.Random, prompt: int) -> BlockRecord:
    """Candidates that are right when the verifier agrees, mostly."""
    agrees = [rng.random() < 0.5 for _ in range(3)]
    seen = [Evidence(rng.random(), rng.random(), each) for each in agrees]
    candidates = tuple(Candidate(each, each.agrees != (rng.random() < 0.1)) for each in seen)
    return BlockRecord(prompt, 9, candidates)


def block_adapter(folder: Path) -> Path:
    """One that has been saved and never calibrated."""
    kept = AdapterRecord(kind=AdapterKind.GATED, base=BaseRecord(name="base"), block_size=4)
    tensors = {f"base_model.model.x.lora_{part}.weight": torch.zeros(2, 2) for part in "AB"}
    save_adapter(folder, tensors, kept, rank=2, alpha=2, placeholder=torch.zeros(1, 2))
    return folder


def invoke(*arguments: object) -> Result:
    """`prove train`."""
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def test_the_fit_is_written_and_its_table_printed(tmp_path: Path) -> None:
    rng, records, out = random.Random(0), tmp_path / "records.jsonl", tmp_path / "gate.json"
    write_records(records, [record(rng, index // 4) for index in range(80)])
    result = invoke("gate", "--records", records, "--out", out)
    assert result.exit_code == 0, result.output
    assert read_gate(out).agrees > 1
    table = dict(line.rsplit(maxsplit=1) for line in result.stdout.splitlines())
    assert (table["blocks"], table["candidates"]) == ("80", "240")
    assert float(table["auc logistic"]) > 0.8
    assert float(table["auc logistic"]) > float(table["auc confidence"])
    assert f"gate_weights: {out}" in " ".join(result.stderr.split())


def test_a_calibration_is_written_into_the_adapter_that_it_is_of(tmp_path: Path) -> None:
    records, adapter = tmp_path / "records.jsonl", block_adapter(tmp_path / "adapter")
    rng = random.Random(0)
    write_records(records, [record(rng, index) for index in range(80)])
    result = invoke("calibration", "--records", records, "--adapter", adapter)
    assert result.exit_code == 0, result.output
    table = dict(line.rsplit(maxsplit=1) for line in result.stdout.splitlines())
    found = read_adapter(str(adapter)).record
    assert found is not None
    assert found.calibration is not None
    assert (float(table["bias"]), float(table["slope"])) == pytest.approx(
        (found.calibration.bias, found.calibration.slope), abs=1e-4
    )
    assert found.calibration.slope < 0.5, "these confidences are worth nothing"
    assert float(table["log loss calibrated"]) < float(table["log loss as they are"])
    assert (found.block_size, found.placeholder_rows) == (4, 1), "the rest of the record stays"
    assert str(adapter / "prove.json") in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", ["gate", "calibration"])
def test_bad_records_are_a_line(tmp_path: Path, command: str) -> None:
    target = {"gate": ("--out", tmp_path / "gate.json"), "calibration": ("--adapter", block_adapter(tmp_path / "a"))}
    result = invoke(command, "--records", tmp_path / "none.jsonl", *target[command])
    assert result.exit_code == 1
    assert "none.jsonl" in result.stderr
    assert "Traceback" not in result.output
