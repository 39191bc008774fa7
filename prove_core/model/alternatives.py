"""Second choices: where a proposed block first fails, the right token was often the next best candidate."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from prove_core.types import Alternative, Alternatives

RANKS = 3  # candidates of a placeholder that may stand in for the chosen one
MOST = 12  # tokens of all alternatives to a block
LEAST = 0.03  # chance that one comes true, as far as confidences say, below which nobody would verify it

Candidates = Sequence[tuple[int, float]]
"""Ids and their probabilities, given that the block's tokens before them match."""


def alternatives(confidences: Sequence[float], others: Sequence[Candidates]) -> Alternatives:
    """To a block with these confidences, of the `others` in the place of each of its tokens: the likeliest first."""
    reach = accumulate(confidences[:-1], mul, initial=1.0)
    found = [
        (before * probability, -accepted, Alternative(accepted, (token,), (probability,)))
        for accepted, (before, candidates) in enumerate(zip(reach, others, strict=True))
        for token, probability in candidates
        if before * probability >= LEAST
    ]
    found.sort(key=lambda each: each[:2], reverse=True)
    return tuple(alternative for *_, alternative in found[:MOST])
