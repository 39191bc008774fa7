"""`prove generate --gate logistic`: refused in a line without a fit, served with one."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from prove_core.decoding.gate_file import write_gate
from prove_core.types import GateWeights
from services.cli.main import app

OTHER_PAIR = "verifier: {engine: {model: {checkpoint: smollm2-135m-instruct, layers: 3}}}\n"  # brings no fit of its own


def test_without_a_fit_the_field_is_named(tmp_path: Path) -> None:
    config = tmp_path / "prove.yaml"
    config.write_text(OTHER_PAIR)
    result = CliRunner().invoke(app, ["generate", "hi", "--gate", "logistic", "--config", str(config)])
    assert result.exit_code == 1
    assert "decoding.gate 'logistic' needs fitted weights" in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.model
def test_with_a_fit_it_decodes(tmp_path: Path) -> None:
    config, gate = tmp_path / "prove.yaml", tmp_path / "gate.json"
    write_gate(gate, GateWeights(-5.0, 0.0, 0.0, 10.0), {})
    config.write_text(f"{OTHER_PAIR}decoding: {{gate_weights: {gate}}}\n")
    arguments = ["generate", "Name a colour.", "--quiet", "--max-tokens", "12", "--config", str(config)]
    gated = CliRunner().invoke(app, [*arguments, "--mode", "prove", "--gate", "logistic", "--theta", "0.5"])
    assert gated.exit_code == 0, gated.output
    assert gated.stdout.strip()
