"""How many leading candidates of a block are committed. Pure functions over short sequences (paper section 3)."""

from collections.abc import Iterable, Sequence
from itertools import takewhile

from prove_core.types import Gate


def _leading(passes: Iterable[bool]) -> int:
    return sum(1 for _ in takewhile(bool, passes))


def match_length(block: Sequence[int], argmax: Sequence[int]) -> int:
    """Greedy acceptance: candidates that equal the verifying model's own argmax, up to the first that does not."""
    return _leading(token == best for token, best in zip(block, argmax, strict=False))


def confident_length(confidences: Sequence[float], tau: float) -> int:
    """The MARS rule: candidates proposed with probability above `tau`, up to the first that was not."""
    return _leading(confidence > tau for confidence in confidences)


def gate_score(gate: Gate, confidence: float, probability: float) -> float:
    """The score a gate compares with theta, from the proposer's c_i and the verifier's v_i."""
    match gate:
        case Gate.PRODUCT:
            return confidence * probability
        case Gate.VERIFIER:
            return probability
        case Gate.CONFIDENCE:
            return confidence


def gated_length(gate: Gate, theta: float, confidences: Sequence[float], probabilities: Sequence[float]) -> int:
    """The ProVe rule: candidates whose gate score is above `theta`, up to the first whose score is not."""
    return _leading(gate_score(gate, c, v) > theta for c, v in zip(confidences, probabilities, strict=True))
