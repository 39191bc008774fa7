"""`prove bench gates` runs, and writes what its readers expect. What it measures decides no test."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import prove_core
from prove_core.decoding.gate_file import read_gate
from prove_core.training.gate import train_gate
from prove_core.training.gate_records import read_records
from services.cli.main import app

ADAPTER = Path(prove_core.__file__).parent / "adapters" / "smollm2-135m-block8"
POLICIES = (
    "lossless",
    "mars_tau0.9",
    "prove_theta0.01",
    "prove_product_at_mars_error",
    "prove_logistic_at_mars_error",
)


@pytest.mark.model
def test_records_are_judged_fitted_and_decoded(tmp_path: Path) -> None:
    data, records, out, gate = (tmp_path / name for name in ("data", "records.jsonl", "out.json", "gate.json"))
    data.write_text(
        '{"question": "Ann has 3 apples and buys 4 more. She eats 2. How many are left?"}\n'
        '{"prompt": "Tell me about the sea and the people who live beside it."}\n'
    )
    common = ("--data", data, "--max-tokens", "12", "--theta", "0.01", "--stride", "3")
    common += ("--checkpoint", "smollm2-135m-instruct", "--adapter", ADAPTER)
    common += ("--verifier-checkpoint", "smollm2-135m-instruct", "--verifier-layers", "2")
    result = CliRunner().invoke(
        app, ["bench", "gates", *map(str, common), "--json", str(out), "--record", str(records)]
    )
    assert result.exit_code == 0, result.output
    blocks = read_records(records)
    report = json.loads(out.read_text())
    figures = report["figures"]
    assert report["config"]["proposer"]["adapter"] == str(ADAPTER)
    assert report["config"]["verifier"]["adapter"] is None
    assert report["config"]["verifier"]["layers"] == 2
    assert (figures["prompts"], figures["blocks"]) == (2, len(blocks))
    for name in POLICIES:
        assert 1 <= figures[f"{name}_tokens_per_cycle"] <= 8
        assert 0 <= figures[f"{name}_non_ar_share"] <= 1
        assert len(report["samples"][f"{name}_cycles"]) == 2
    assert figures["lossless_non_ar_share"] == 0, "deterministic: nothing is a matter of rounding"
    for name in ("confidence", "verifier", "product", "logistic"):
        assert 0 <= figures[f"auc_{name}"] <= 1
    fit = train_gate([records], gate)
    assert fit.blocks == len(blocks)
    assert read_gate(gate) == fit.weights


def test_weights_that_cannot_be_read_are_one_line(tmp_path: Path) -> None:
    arguments = ["bench", "gates", "--data", str(tmp_path), "--gate-weights", str(tmp_path / "none.json")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "none.json: cannot be read" in result.stderr
    assert "Traceback" not in result.output
