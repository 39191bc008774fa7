"""Acceptance rules against an obvious reference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.acceptance import confident_length, gate_score, gated_length, match_length
from prove_core.types import Gate

UNIT = st.floats(0, 1)


def leading(flags: list[bool]) -> int:
    count = 0
    for flag in flags:
        if not flag:
            return count
        count += 1
    return count


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12))
def test_match_length(pairs: list[tuple[int, int]]) -> None:
    block = [pair[0] for pair in pairs]
    argmax = [*(pair[1] for pair in pairs), 0]
    assert match_length(block, argmax) == leading([a == b for a, b in pairs])


@given(st.lists(UNIT, max_size=12), UNIT)
def test_confident_length(confidences: list[float], tau: float) -> None:
    assert confident_length(confidences, tau) == leading([c > tau for c in confidences])


@given(st.sampled_from(list(Gate)), UNIT, st.lists(st.tuples(UNIT, UNIT), max_size=12))
def test_gated_length(gate: Gate, theta: float, scores: list[tuple[float, float]]) -> None:
    by_hand = {Gate.PRODUCT: lambda c, v: c * v, Gate.VERIFIER: lambda c, v: v, Gate.CONFIDENCE: lambda c, v: c}[gate]
    assert gated_length(gate, theta, [c for c, _ in scores], [v for _, v in scores]) == leading(
        [by_hand(c, v) > theta for c, v in scores]
    )


def test_a_threshold_is_exclusive_and_a_gate_uses_only_its_scalars() -> None:
    assert confident_length([0.9], 0.9) == 0
    assert gated_length(Gate.PRODUCT, 0.0, [0.0], [1.0]) == 0
    assert gate_score(Gate.VERIFIER, 0.0, 0.4) == 0.4
    assert gate_score(Gate.CONFIDENCE, 0.3, 0.0) == 0.3


def test_scores_of_different_lengths_are_a_bug() -> None:
    with pytest.raises(ValueError, match="zip"):
        gated_length(Gate.PRODUCT, 0.0, [1.0, 1.0], [1.0])
