"""How many leading candidates of a block are committed. Pure functions over short sequences (paper section 3)."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prove_core.errors import RequestError
from prove_core.model.path import leading
from prove_core.types import DecodingParams, Gate, GateWeights, Reading

SMALLEST = 1e-6  # probabilities below count as this much: far under any threshold, and their logarithm stays tame


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a gate knows of candidate d_i: c_i, v_i, and whether d_i is the verifier's own argmax in its place."""

    confidence: float
    probability: float
    agrees: bool


def confident_length(confidences: Sequence[float], tau: float) -> int:
    """The MARS rule: candidates proposed with probability above `tau`, up to the first that was not."""
    return leading(confidence > tau for confidence in confidences)


def evidence(block: Sequence[int], confidences: Sequence[float], reading: Reading) -> list[Evidence]:
    """The evidence of each candidate of `block`, which was proposed with `confidences` and read as `reading`."""
    triples = zip(block, confidences, reading.probabilities, reading.argmax[:-1], strict=True)
    return [Evidence(c, v, token == best) for token, c, v, best in triples]


def features(candidate: Evidence) -> tuple[float, float, float]:
    """What the logistic gate weighs besides its bias: log c, log v (both floored), and 1 where the verifier agrees."""
    return (
        math.log(max(candidate.confidence, SMALLEST)),
        math.log(max(candidate.probability, SMALLEST)),
        float(candidate.agrees),
    )


def logistic_score(weights: GateWeights, candidate: Evidence) -> float:
    """The fitted probability that the candidate is the proposer's own AR token."""
    log_confidence, log_probability, agrees = features(candidate)
    logit = (
        weights.bias
        + weights.log_confidence * log_confidence
        + weights.log_probability * log_probability
        + weights.agrees * agrees
    )
    # the form whose exponential cannot overflow
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))


def gate_score(gate: Gate, candidate: Evidence, weights: GateWeights | None = None) -> float:
    """The score, 0..1, that a gate compares with theta. Raises RequestError for `logistic` without weights."""
    match gate:
        case Gate.PRODUCT:
            return candidate.confidence * candidate.probability
        case Gate.VERIFIER:
            return candidate.probability
        case Gate.CONFIDENCE:
            return candidate.confidence
        case Gate.LOGISTIC:
            if weights is None:
                raise no_weights()
            return logistic_score(weights, candidate)


def gated_length(params: DecodingParams, candidates: Iterable[Evidence]) -> int:
    """The ProVe rule: candidates whose gate score is above `theta`, up to the first whose score is not.

    Raises RequestError for gate `logistic` without weights.
    """
    return leading(gate_score(params.gate, each, params.gate_weights) > params.theta for each in candidates)


def check_gate(params: DecodingParams) -> DecodingParams:
    """`params`, if its gate can be applied. Raises RequestError naming the field for `logistic` without weights."""
    if params.gate is Gate.LOGISTIC and params.gate_weights is None:
        raise no_weights()
    return params


def no_weights() -> RequestError:
    """What is wrong with gate `logistic` where no fit is configured."""
    return RequestError(
        "decoding.gate 'logistic' needs fitted weights and none are configured (decoding.gate_weights)",
        "decoding.gate",
    )
