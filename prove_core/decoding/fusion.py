"""Fused propose-verify: which placeholders to put behind which drafts of a pass (design section 3). Pure functions.

The pass that verifies drafts d_1..d_K commits d_1..d_a and its own next token, where a is the number that match. It can
propose what comes after that too, but must guess a: a branch of placeholders costs rows, and pays if verification stops
just there. So rows go where they are expected to commit most.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul

from prove_core.decoding.drafts import Drafts, beginnings, reach
from prove_core.types import Alternatives, Branch

_UNKNOWN = 0.6  # chance of a draft that nothing is known of yet, given that those before it matched
_MEMORY = 0.9  # weight of the past in the outlook, per pass
_WORTH = 0.02  # expected tokens below which a row is not worth its time


def no_drafts(block_size: int) -> Drafts:
    """Before the first pass."""
    return Drafts((), (), tuple(_UNKNOWN ** (depth + 1) for depth in range(block_size - 1)))


def observed(
    outlook: Sequence[float], drafted: int, accepted: int, unread: Sequence[float] = (), *, memory: float = _MEMORY
) -> tuple[float, ...]:
    """The outlook after a pass that accepted so many of its drafts; a pass without drafts teaches nothing.

    `unread` are the chances of drafts that came behind and were not worth verifying, each given those before it: they
    count as what they promised, or the outlook would rest on good drafts alone. `memory` is the weight of the past.
    """
    seen = [float(depth < accepted) for depth in range(drafted)]
    if accepted == drafted:
        seen += accumulate(unread, mul)
    else:
        seen += [0.0] * len(unread)
    news = 1.0 - memory
    learnt = [memory * chance + news * value for chance, value in zip(outlook, seen, strict=False)]
    return (*learnt, *outlook[len(learnt) :])


def stop_chances(confidences: Sequence[float]) -> list[float]:
    """For a = 0..K the chance that exactly the first a drafts match, if each matches with its confidence."""
    return stops([*accumulate(confidences, mul)])


def stops(reach: Sequence[float]) -> list[float]:
    """The same from the chances that the first 1..K drafts match."""
    return [here - further for here, further in zip([1.0, *reach], [*reach, 0.0], strict=True)]


def plan_rows(drafts: Drafts, rows: int, room: int) -> tuple[tuple[Branch, ...], Alternatives]:
    """The branches, by ascending place, and tokens of alternatives that are worth most within so many rows.

    A placeholder at depth j behind stop a is expected to commit P(stop at a) * outlook[j] tokens, a token of an
    alternative as many as it is likely to come true. `room` is how many tokens may still be committed: a + 1 by this
    pass and one by the next pass anyway, so drafts can use the rest.
    """
    placeholders = [
        (chance * survival, accepted)
        for accepted, chance in enumerate(stop_chances(drafts.confidences))
        for depth, survival in enumerate(drafts.outlook)
        if accepted + depth + 3 <= room
    ]
    others = [(chance, ~index) for index, other in enumerate(drafts.alternatives) for chance in reach(drafts, other)]
    values = [value for value in (*placeholders, *others) if value[0] >= _WORTH]
    values.sort(reverse=True)
    places = [place for _, place in values[:rows]]
    counts = Counter(~place for place in places if place < 0)
    return gathered(place for place in places if place >= 0), beginnings(drafts.alternatives, counts)


def gathered(places: Iterable[int]) -> tuple[Branch, ...]:
    """The branches that put a placeholder behind each stop named, by ascending place."""
    return tuple(Branch(accepted, count) for accepted, count in sorted(Counter(places).items()))
