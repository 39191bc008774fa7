"""From a proposer's confidence in a draft to the chance that it matches, given that those before it match."""

import math
from collections.abc import Iterable

from prove_core.types import Calibration

CLOSEST = 1e-6  # to 0 and 1, where log-odds stay tame


def log_odds(confidence: float) -> float:
    """log(c / (1 - c)), c kept off 0 and 1."""
    kept = min(max(confidence, CLOSEST), 1.0 - CLOSEST)
    return math.log(kept / (1.0 - kept))


def chances(calibration: Calibration, confidences: Iterable[float]) -> list[float]:
    """The fitted chance of each confidence: a logistic function of its log-odds. (0, 1) is the identity."""
    # tanh, because exp overflows
    return [0.5 + 0.5 * math.tanh((calibration.bias + calibration.slope * log_odds(c)) / 2) for c in confidences]
