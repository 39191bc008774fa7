"""Drafts in hand: a block proposed to come next, and alternatives to it. Pure functions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from operator import mul

from prove_core.decoding.limits import Budget
from prove_core.types import Alternative, Alternatives, Branch, Fused, TokenIds

WORTH_VERIFYING = 0.15  # chance of an alternative's token from which on it gets a row, where nothing is measured


@dataclass(frozen=True, slots=True)
class Drafts:
    """What is carried from pass to pass: tokens proposed to come next, and alternatives to them.

    The first `new` ones are of a branch that stood where the pass before stopped; the others, less likely, of what an
    earlier one left. `left` rows will say what comes in the places of the drafts and behind, whatever matches of them.
    """

    tokens: TokenIds
    confidences: tuple[float, ...]
    alternatives: Alternatives = ()
    new: int = 0
    left: int = 0


def within(budget: Budget, drafts: Drafts) -> Drafts:
    """What of `drafts` may be committed: through the first stop id, and leaving room for the token after them."""
    room = max(0, budget.remaining - 1)
    tokens = budget.through_stop(drafts.tokens[:room])
    kept = []
    for other in drafts.alternatives:
        path = budget.through_stop(other.tokens[: max(0, room - other.accepted)])
        if path and other.accepted < len(tokens):
            kept.append(_begin(other, len(path)))
    return replace(drafts, tokens=tokens, confidences=drafts.confidences[: len(tokens)], alternatives=tuple(kept))


def reach(drafts: Drafts, other: Alternative) -> list[float]:
    """For each token of an alternative the chance that it comes true, as far as confidences say."""
    return [*accumulate(other.confidences, mul, initial=prod(drafts.confidences[: other.accepted]))][1:]


def worth_verifying(drafts: Drafts) -> Alternatives:
    """Of the alternatives the tokens that are likely enough to have rows of their own."""
    likely = [sum(chance >= WORTH_VERIFYING for chance in reach(drafts, other)) for other in drafts.alternatives]
    return beginnings(drafts.alternatives, dict(enumerate(likely)))


def beginnings(alternatives: Alternatives, counts: Mapping[int, int]) -> Alternatives:
    """Of alternative number i its first `counts[i]` tokens, if there are any."""
    return tuple(_begin(other, count) for i, other in enumerate(alternatives) if (count := counts.get(i, 0)))


def carried(answer: Fused, most: int, branches: Iterable[Branch], matched: int, committed: int) -> Drafts:
    """What a pass proposes for the next one, `most` tokens of it.

    It ran `branches`, its block matched up to `matched`, and it `committed` more tokens than that.
    """
    others = tuple([other for other in answer.alternatives if other.accepted < most])
    there = sum([branch.placeholders for branch in branches if branch.accepted == matched])
    new = min(max(0, there - (committed - 1)), most)
    left = len(answer.drafts) if answer.kept else 0
    return Drafts(answer.drafts[:most], answer.confidences[:most], others, new, left)


def _begin(other: Alternative, count: int) -> Alternative:
    return Alternative(other.accepted, other.tokens[:count], other.confidences[:count])
