"""From a proposer's confidence in a draft to the chance that it matches, given that those before it match."""

import math
from collections.abc import Iterable, Sequence

from prove_core.decoding.drafts import Drafts
from prove_core.decoding.plan import Other
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


def other_chances(calibration: Calibration, drafts: Drafts, likely: Sequence[float]) -> list[Other]:
    """Of all tokens of alternatives; `likely` are the chances of the drafts.

    What the calibration takes from a draft goes to its alternatives in proportion, or comes from them.
    """
    found = []
    for index, other in enumerate(drafts.alternatives):
        place = other.accepted
        left = max(1.0 - drafts.confidences[place], CLOSEST)
        chance = min(1.0, other.confidences[0] / left) * (1.0 - likely[place])
        found.append(Other(place, chance, index))
        for further in chances(calibration, other.confidences[1:]):
            chance *= further
            found.append(Other(place, chance, index))
    return found
