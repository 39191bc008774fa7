"""Gate files: what is written is read, and anything else is one line with the file's name."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.gate_file import read_gate, weights_from, write_gate
from prove_core.errors import DataError
from prove_core.types import GateWeights

WEIGHTS = GateWeights(0.5, 1.25, -2.0, 3.0)
GOOD = {"bias": 0.5, "log_confidence": 1.25, "log_probability": -2, "agrees": 3}


def test_written_weights_are_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "gate.json"
    write_gate(path, WEIGHTS, {"auc": {"product": 0.9}})
    assert read_gate(path) == WEIGHTS
    assert json.loads(path.read_text())["auc"] == {"product": 0.9}


@given(st.builds(GateWeights, *[st.floats(allow_nan=False, allow_infinity=False)] * 4))
def test_no_bit_is_lost_in_the_file(tmp_path_factory: pytest.TempPathFactory, weights: GateWeights) -> None:
    path = tmp_path_factory.getbasetemp() / "gate.json"
    write_gate(path, weights, {})
    assert read_gate(path) == weights


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[1]", "JSON object with `weights`"),
        ('{"bias": 1}', "JSON object with `weights`"),
        ('{"weights": [1, 2, 3, 4]}', "exactly the keys bias, log_confidence, log_probability, agrees"),
        (json.dumps({"weights": GOOD | {"more": 1}}), "exactly the keys"),
        (json.dumps({"weights": {k: v for k, v in GOOD.items() if k != "agrees"}}), "exactly the keys"),
        (json.dumps({"weights": GOOD | {"bias": "1"}}), "bias must be a finite number, got '1'"),
        (json.dumps({"weights": GOOD | {"bias": True}}), "bias must be a finite number"),
        (json.dumps({"weights": GOOD | {"agrees": float("nan")}}), "agrees must be a finite number"),
        (json.dumps({"weights": GOOD | {"agrees": 10**400}}), "agrees must be a finite number"),
    ],
)
def test_other_files_are_refused_in_a_line(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "gate.json"
    path.write_text(text)
    with pytest.raises(DataError, match=complaint) as raised:
        read_gate(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none.json: cannot be read: No such file"):
        read_gate(tmp_path / "none.json")
    (tmp_path / "raw").write_bytes(b"\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        read_gate(tmp_path / "raw")
    with pytest.raises(DataError, match="cannot be written"):
        write_gate(tmp_path / "raw" / "gate.json", WEIGHTS, {})


def test_plain_weights() -> None:
    assert weights_from(GOOD) == WEIGHTS
