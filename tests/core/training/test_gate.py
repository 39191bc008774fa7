"""The fit of the logistic gate: it finds known weights, minimises what it says, and refuses what says nothing."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.acceptance import Evidence, logistic_score
from prove_core.decoding.gate_file import read_gate
from prove_core.errors import DataError
from prove_core.training.gate import RIDGE, fit_gate, train_gate
from prove_core.training.gate_records import BlockRecord, Candidate, read_records, write_records
from prove_core.types import GateWeights

TRUE = GateWeights(bias=0.5, log_confidence=1.5, log_probability=0.75, agrees=2.0)
LINE = {"prompt": 1, "anchor": 9, "confidence": [0.5], "probability": [0.25], "agrees": [True], "right": [False]}


def drawn(blocks: int, prompts: int, weights: GateWeights, seed: int = 0) -> list[BlockRecord]:
    """Blocks whose labels are drawn from a known gate."""
    rng = random.Random(seed)
    records = []
    for index in range(blocks):
        seen = [Evidence(rng.random(), rng.random() ** 2, rng.random() < 0.6) for _ in range(7)]
        candidates = tuple(Candidate(each, rng.random() < logistic_score(weights, each)) for each in seen)
        records.append(BlockRecord(index * prompts // blocks, 10 + index, candidates))
    return records


def loss(weights: GateWeights, records: list[BlockRecord]) -> float:
    """The objective, term by term."""
    total = RIDGE / 2 * (weights.log_confidence**2 + weights.log_probability**2 + weights.agrees**2)
    for record in records:
        for each in record.candidates:
            chance = min(max(logistic_score(weights, each.evidence), 1e-300), 1 - 1e-16)
            total -= math.log(chance if each.right else 1 - chance)
    return total


def test_known_weights_are_found_again() -> None:
    found = fit_gate(drawn(6000, 10, TRUE))
    for name in ("bias", "log_confidence", "log_probability", "agrees"):
        assert getattr(found, name) == pytest.approx(getattr(TRUE, name), abs=0.12), name


@pytest.mark.parametrize("seed", range(3))
def test_no_other_weights_near_by_do_better(seed: int) -> None:
    records = drawn(40, 4, TRUE, seed)
    found = fit_gate(records)
    least = loss(found, records)
    for name in ("bias", "log_confidence", "log_probability", "agrees"):
        for move in (-0.01, 0.01):
            assert loss(replace(found, **{name: getattr(found, name) + move}), records) > least


def test_a_feature_that_separates_keeps_weights_finite_and_the_fit_repeats_itself() -> None:
    rng = random.Random(1)
    records = []
    for index in range(200):
        agrees = [rng.random() < 0.5 for _ in range(5)]
        candidates = tuple(Candidate(Evidence(0.5, 0.9 if a else 0.1, a), a) for a in agrees)
        records.append(BlockRecord(index, 1, candidates))
    found = fit_gate(records)
    assert all(abs(value) < 30 for value in (found.bias, found.log_confidence, found.log_probability, found.agrees))
    assert logistic_score(found, Evidence(0.5, 0.9, True)) > 0.9
    assert fit_gate(records) == found


@pytest.mark.parametrize("right", [True, False])
def test_one_class_is_refused(right: bool) -> None:
    block = BlockRecord(0, 1, (Candidate(Evidence(0.5, 0.5, True), right),) * 3)
    with pytest.raises(DataError, match="right and wrong"):
        fit_gate([block])
    with pytest.raises(DataError, match="right and wrong"):
        fit_gate([])


def test_training_writes_the_gate_and_judges_it_on_prompts_it_has_not_seen(tmp_path: Path) -> None:
    first, second, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "gate.json"
    records = drawn(400, 10, TRUE)
    write_records(first, records)
    write_records(second, drawn(100, 5, TRUE, seed=1))
    fit = train_gate([first, second], out)
    assert read_gate(out) == fit.weights
    assert (fit.blocks, fit.candidates) == (500, 3500)
    assert set(fit.auc) == {"product", "verifier", "confidence", "logistic"}
    assert fit.auc["logistic"] > max(fit.auc["product"], fit.auc["verifier"], fit.auc["confidence"])
    about = json.loads(out.read_text())
    assert (about["auc"], about["blocks"], about["candidates"]) == (fit.auc, 500, 3500)
    held_out = [replace(r, candidates=tuple(replace(c, right=not c.right) for c in r.candidates)) for r in records[:40]]
    write_records(first, [*held_out, *records[40:]])  # the first prompt is held out: its labels change no weight
    assert train_gate([first, second], out).weights == fit.weights


def test_records_of_one_prompt_are_too_few(tmp_path: Path) -> None:
    write_records(tmp_path / "a.jsonl", drawn(50, 1, TRUE))
    with pytest.raises(DataError, match="some prompts and judged on others"):
        train_gate([tmp_path / "a.jsonl"], tmp_path / "gate.json")
    assert not (tmp_path / "gate.json").exists()


CANDIDATES = st.builds(Candidate, st.builds(Evidence, st.floats(0, 1), st.floats(0, 1), st.booleans()), st.booleans())
RECORDS = st.builds(BlockRecord, st.integers(0, 9), st.integers(0, 999), st.lists(CANDIDATES, max_size=5).map(tuple))


@given(st.lists(RECORDS, min_size=1, max_size=5))
def test_written_records_are_read(tmp_path_factory: pytest.TempPathFactory, records: list[BlockRecord]) -> None:
    path = tmp_path_factory.getbasetemp() / "records.jsonl"
    write_records(path, records)
    assert read_records(path) == records


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("[]", "JSON object"),
        ("{", "not JSON"),
        (json.dumps(LINE | {"prompt": -1}), "`prompt` must be an integer"),
        (json.dumps(LINE | {"anchor": True}), "`anchor` must be an integer"),
        (json.dumps(LINE | {"confidence": [1.5]}), "`confidence` must be a list of probabilities"),
        (json.dumps(LINE | {"probability": [float("nan")]}), "`probability` must be a list of probabilities"),
        (json.dumps(LINE | {"probability": 0.5}), "`probability` must be a list"),
        (json.dumps(LINE | {"agrees": [1]}), "`agrees` must be a list of true or false"),
        (json.dumps({key: value for key, value in LINE.items() if key != "right"}), "`right` must be a list"),
        (json.dumps(LINE | {"right": [True, False]}), "same length"),
    ],
)
def test_bad_records_are_refused_with_the_line(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(LINE) + "\n" + line + "\n")
    with pytest.raises(DataError, match=complaint) as raised:
        read_records(path)
    assert f"{path}, line 2" in str(raised.value)


def test_no_records_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(DataError, match="has no blocks"):
        read_records(tmp_path / "empty.jsonl")
    with pytest.raises(DataError, match="cannot be written"):
        write_records(tmp_path / "empty.jsonl" / "out.jsonl", [])
