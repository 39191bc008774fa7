"""Acceptance rules against an obvious reference."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.acceptance import (
    SMALLEST,
    Evidence,
    check_gate,
    confident_length,
    evidence,
    gate_score,
    gated_length,
    logistic_score,
)
from prove_core.errors import RequestError
from prove_core.types import DecodingParams, Gate, GateWeights, Mode, Reading

UNIT = st.floats(0, 1)
EVIDENCE = st.builds(Evidence, UNIT, UNIT, st.booleans())
WEIGHTS = st.builds(GateWeights, *[st.floats(-20, 20)] * 4)


def leading(flags: list[bool]) -> int:
    count = 0
    for flag in flags:
        if not flag:
            return count
        count += 1
    return count


def sigmoid_by_hand(weights: GateWeights, seen: Evidence) -> float:
    logit = weights.bias
    logit += weights.log_confidence * math.log(max(seen.confidence, SMALLEST))
    logit += weights.log_probability * math.log(max(seen.probability, SMALLEST))
    logit += weights.agrees if seen.agrees else 0.0
    return 0.5 * (1 + math.tanh(logit / 2))


def gated(gate: Gate, theta: float) -> DecodingParams:
    return DecodingParams(Mode.PROVE, gate, theta)


@given(st.lists(UNIT, max_size=12), UNIT)
def test_confident_length(confidences: list[float], tau: float) -> None:
    assert confident_length(confidences, tau) == leading([c > tau for c in confidences])


@given(st.sampled_from(list(Gate)), UNIT, st.lists(EVIDENCE, max_size=12), WEIGHTS)
def test_gated_length(gate: Gate, theta: float, candidates: list[Evidence], weights: GateWeights) -> None:
    by_hand: dict[Gate, Callable[[Evidence], float]] = {
        Gate.PRODUCT: lambda seen: seen.confidence * seen.probability,
        Gate.VERIFIER: lambda seen: seen.probability,
        Gate.CONFIDENCE: lambda seen: seen.confidence,
        Gate.LOGISTIC: lambda seen: logistic_score(weights, seen),
    }
    params = DecodingParams(Mode.PROVE, gate, theta, gate_weights=weights)
    assert gated_length(params, candidates) == leading([by_hand[gate](seen) > theta for seen in candidates])


@given(WEIGHTS, EVIDENCE)
def test_the_logistic_score_is_a_sigmoid(weights: GateWeights, seen: Evidence) -> None:
    assert logistic_score(weights, seen) == pytest.approx(sigmoid_by_hand(weights, seen), abs=1e-12)


def test_no_logit_overflows() -> None:
    far = Evidence(0.0, 0.0, True)
    assert logistic_score(GateWeights(0.0, 1e6, 1e6, 0.0), far) == 0.0
    assert logistic_score(GateWeights(0.0, -1e6, -1e6, 0.0), far) == 1.0


def test_a_threshold_is_exclusive_and_a_gate_uses_only_its_scalars() -> None:
    assert confident_length([0.9], 0.9) == 0
    assert gated_length(gated(Gate.PRODUCT, 0.0), [Evidence(0.0, 1.0, True)]) == 0
    assert gate_score(Gate.VERIFIER, Evidence(0.0, 0.4, False)) == 0.4
    assert gate_score(Gate.CONFIDENCE, Evidence(0.3, 0.0, False)) == 0.3


def test_the_logistic_gate_needs_weights() -> None:
    params = gated(Gate.LOGISTIC, 0.5)
    for refuse in (lambda: check_gate(params), lambda: gated_length(params, [Evidence(1.0, 1.0, True)])):
        with pytest.raises(RequestError, match="fitted weights") as raised:
            refuse()
        assert raised.value.param == "decoding.gate"
    assert check_gate(gated(Gate.PRODUCT, 0.5)) == gated(Gate.PRODUCT, 0.5)


def test_evidence_is_read_place_by_place() -> None:
    reading = Reading(argmax=(7, 8, 9, 1), probabilities=(0.9, 0.8, 0.1))
    found = evidence((7, 5, 9), (0.3, 0.2, 0.1), reading)
    assert found == [Evidence(0.3, 0.9, True), Evidence(0.2, 0.8, False), Evidence(0.1, 0.1, True)]


def test_scores_of_different_lengths_are_a_bug() -> None:
    with pytest.raises(ValueError, match="zip"):
        evidence((1, 2), (1.0, 1.0), Reading((1, 2, 3), (1.0,)))
