"""What the next pass can count on behind each stop: placeholders there, and what is left of a block. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

STILL = 0.7  # chance of a draft from what is left of an earlier block, over that of a new one in its place


@dataclass(frozen=True, slots=True)
class Ahead:
    """In tokens, by how many rows of the block in hand are left behind a stop.

    `left[n]`: what n of them are worth. `more[n][j]`: what a new placeholder at depth j adds to that, falling. Both
    are given for up to as many rows as a block has: more count as these.
    """

    left: Sequence[float]
    more: Sequence[Sequence[float]]

    @property
    def alone(self) -> "Ahead":
        """Without new placeholders."""
        return Ahead(self.left, ((),))

    def worth(self, rows: int) -> float:
        """Of so many rows, none if negative."""
        return self.left[min(max(rows, 0), len(self.left) - 1)]

    def placeholders(self, rows: int) -> Sequence[float]:
        """Beside so many rows."""
        return self.more[min(max(rows, 0), len(self.more) - 1)]


def ahead(promise: Sequence[float], still: float = STILL) -> Ahead:
    """Where `promise[j]` is what a draft at depth j of a new block adds to those before it, falling.

    A draft from a row that is left is that much less likely, and those behind it too.
    """
    depth = len(promise)
    worth = [[_worth(promise, still, new, rows) for new in range(depth + 1)] for rows in range(depth + 1)]
    more = [falling([after - before for before, after in pairwise(row)]) for row in worth]
    return Ahead([row[0] for row in worth], more)


def _worth(promise: Sequence[float], still: float, new: int, rows: int) -> float:
    """Of so many new drafts, then those that are left."""
    return sum(promise[:new]) + sum(promise[depth] * still ** (depth + 1 - new) for depth in range(new, rows))


def falling(values: Sequence[float]) -> tuple[float, ...]:
    """Neighbours that rise are pooled: a block is never worth less for a promise spread evenly over its drafts."""
    pools: list[tuple[float, int]] = []  # sum, number
    for value in values:
        pools.append((value, 1))
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] < pools[-1][0] * pools[-2][1]:
            (total, count), (more, further) = pools[-2], pools.pop()
            pools[-1] = (total + more, count + further)
    return tuple(total / count for total, count in pools for _ in range(count))


NOTHING = Ahead((0.0,), ((),))
"""Where nothing is proposed, and nothing is left."""
