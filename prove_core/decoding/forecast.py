"""What proposing comes to in a steady state, and what drafts in hand are worth there. Pure.

A decision process with an average reward: in hand are n drafts, a pass verifies some and proposes others, its seconds
cost as many tokens as would be decoded meanwhile. Value iteration over blocks seen lately, which say how chances are
spread: that some blocks are sure and others hopeless is what makes choosing worth while. What is left of blocks counts
as nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from prove_core.decoding.ahead import ahead, falling
from prove_core.decoding.plan import Other, SharedCost, options

FIRST_ROUNDS = 4  # of value iteration where nothing is known
_UNKNOWN = 0.4  # value of the first draft before that, and of each in those of the one before


class Block(NamedTuple):
    """Chances of a block's drafts, each given that those before it match, and the tokens of alternatives to them."""

    chances: tuple[float, ...]
    others: tuple[Other, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """`gain`: times as fast as plain AR that proposing is, done as well as can be.

    `promise[j]`: tokens that a draft at depth j adds to what those before it are worth, beyond the time that verifying
    takes. Falling.
    """

    gain: float
    promise: tuple[float, ...]


def forecast(blocks: Sequence[Block], cost: SharedCost, earlier: Forecast | None = None) -> Forecast:
    """From blocks of equal depth, at least one; `earlier` is what was found before, for about the same."""
    depth = len(blocks[0].chances)
    found = earlier or Forecast(1.0, tuple(_UNKNOWN ** (1 + j) for j in range(depth)))
    for _ in range(1 if earlier else FIRST_ROUNDS):
        gain = _gain(found.promise, cost)
        found = Forecast(gain, _promise(blocks, found.promise, cost, max(1.0, gain) / cost.ar))
    return found


def _gain(promise: Sequence[float], cost: SharedCost) -> float:
    """Of a pass that proposes from nothing, over plain AR: in a steady state all passes are worth as much."""
    best, tokens = 0.0, 1.0
    for placeholders, value in enumerate(promise[: len(cost.alike.rows) - 1], start=1):
        tokens += value
        best = max(best, tokens * cost.ar / (cost.ar + cost.alike.seconds(0, placeholders)))
    return best


def _promise(blocks: Sequence[Block], promise: Sequence[float], cost: SharedCost, price: float) -> tuple[float, ...]:
    """What one more draft adds to the best a pass can do, on average over the blocks."""
    worth = [0.0] * (len(promise) + 1)
    following = ahead(promise)
    for block in blocks:
        found = options(block.chances, following, cost.alike, price, _ENDLESS, price * cost.row, block.others)
        best = found[0].worth
        for drafts in range(len(worth)):
            if drafts < len(found):
                best = max(best, found[drafts].worth)
            worth[drafts] += best
    return falling([(after - before) / len(blocks) for before, after in pairwise(worth)])


_ENDLESS = 1 << 30
