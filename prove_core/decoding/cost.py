"""What a forward pass costs: seconds by its rows, interpolated between measured sizes. Pure functions.

Tokens and placeholders cost a row each; placeholders cost extra (an adapter's rows, a sequential head's walk), and the
first one most of it. Windows cost something each, whatever is in them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

Knots = tuple[tuple[int, float], ...]
"""Sizes above 0, ascending, and seconds, never falling."""


@dataclass(frozen=True, slots=True)
class PassCost:
    """Seconds of a pass: `rows` by all its rows, plus `extra` by its placeholders, plus `window` per further window.

    Below the first size its seconds hold, above the last one the last slope goes on. No placeholders: no extra.
    """

    rows: Knots
    extra: Knots
    window: float

    def seconds(self, tokens: int, placeholders: int, windows: int = 1) -> float:
        """Of a pass of so many token and placeholder rows in so many windows. Never falls as one of them grows."""
        return self.of_rows(tokens + placeholders) + self.of_placeholders(placeholders) + self.window * (windows - 1)

    def of_rows(self, rows: int) -> float:
        """The part that tokens and placeholders alike cause."""
        return _at(self.rows, rows)

    def of_placeholders(self, placeholders: int) -> float:
        """What placeholders cost beyond their rows."""
        return _at(self.extra, placeholders) if placeholders else 0.0


_PACE = 0.2  # weight of a pass in the pace
_CORRECTION = 0.02  # least weight of a pass for the sizes next to it
_FAMILIAR = 256.0  # passes of a size after which half of what they deviate by is put down to the machine
_WILDEST = 2.0  # a pass that took more than this times what was expected was held up by something else

FREE = PassCost(rows=((1, 1e-3),), extra=((1, 0.0),), window=0.0)  # all passes alike, as where there is no model


def fitted(rows: Sequence[tuple[int, float]], extra: Sequence[tuple[int, float]], window: float) -> PassCost:
    """From noisy measurements by ascending size: the nearest curves that never fall, nor go below 0.

    Rows are held to what they would cost in smaller passes, which large ones, disturbed more easily, often exceed.
    """
    held: list[tuple[int, float]] = []
    for size, seconds in _rising(rows):
        most = held[-1][1] * size / held[-1][0] if held else seconds
        held.append((size, min(seconds, most)))
    return PassCost(tuple(held), _rising(extra), max(0.0, window))


class LiveCost:
    """A `PassCost` that follows what passes take.

    All passes slow down together when something else takes the machine, which says nothing of their shapes: `pace`
    follows that at once. What a pass deviates from the pace moves the sizes next to it: the first passes of a size by
    much, since a measurement at start is a few passes at best, later ones by little.
    """

    def __init__(self, cost: PassCost) -> None:
        self.cost = cost
        self.pace = 1.0
        self._rows = [1.0] * len(cost.rows)
        self._extra = [1.0] * len(cost.extra)

    def follow(self, tokens: int, placeholders: int, windows: int, seconds: float) -> None:
        """A pass of such a shape took so long. One without a duration says nothing."""
        expected = self.pace * self.cost.seconds(tokens, placeholders, windows)
        if seconds <= 0.0 or expected <= 0.0:
            return
        ratio = min(max(seconds / expected, 1.0 / _WILDEST), _WILDEST)
        self.pace *= ratio ** (_PACE * self._known(tokens + placeholders, placeholders))
        rows = _moved(self.cost.rows, tokens + placeholders, ratio, self._rows)
        extra = _moved(self.cost.extra, placeholders, ratio, self._extra) if placeholders else self.cost.extra
        self.cost = PassCost(rows, extra, self.cost.window)

    def _known(self, rows: int, placeholders: int) -> float:
        """How well the seconds of a shape are known, from 0 to 1: what is new about a new shape is not the pace."""
        counts = [self._rows[index] for index, share in _shares(self.cost.rows, rows) if share]
        if placeholders:
            counts += [self._extra[index] for index, share in _shares(self.cost.extra, placeholders) if share]
        return min(counts) / (min(counts) + _FAMILIAR)


def _moved(knots: Knots, size: int, ratio: float, counts: list[float]) -> Knots:
    """The two knots around `size` moved towards `ratio` times themselves, each as much as it is near.

    `counts` are the passes that each has seen, these included afterwards; they weigh where the curve must be mended.
    """
    moved = list(knots)
    for index, share in _shares(knots, size):
        at, seconds = moved[index]
        counts[index] += share
        moved[index] = (at, seconds * ratio ** (share * max(_CORRECTION, 1.0 / (1.0 + counts[index]))))
    return _rising(moved, counts)


def _shares(knots: Knots, size: int) -> list[tuple[int, float]]:
    """The knots next to `size` and how near each is; the shares add up to 1."""
    right = min(bisect_left(knots, (size,)), len(knots) - 1)
    if right == 0 or size >= knots[right][0]:
        return [(right, 1.0)]
    low, high = knots[right - 1][0], knots[right][0]
    share = (size - low) / (high - low)
    return [(right - 1, 1.0 - share), (right, share)]


def _at(knots: Knots, size: int) -> float:
    if size > knots[-1][0] and len(knots) > 1:  # the last slope goes on
        (left, low), (right, high) = knots[-2:]
        return high + (high - low) * (size - right) / (right - left)
    return sum(share * knots[index][1] for index, share in _shares(knots, size))


def _rising(knots: Sequence[tuple[int, float]], weights: Sequence[float] | None = None) -> Knots:
    """Isotonic regression: neighbours that fall are pooled at their (weighted) mean."""
    pools: list[tuple[float, float, int]] = []  # weighted sum, weight, number
    for (_, seconds), weight in zip(knots, weights or [1.0] * len(knots), strict=True):
        pools.append((max(0.0, seconds) * weight, weight, 1))
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] > pools[-1][0] * pools[-2][1]:
            (total, heavy, count), (more, weigh, further) = pools[-2], pools.pop()
            pools[-1] = (total + more, heavy + weigh, count + further)
    means = [total / heavy for total, heavy, count in pools for _ in range(count)]
    return tuple((size, mean) for (size, _), mean in zip(knots, means, strict=True))
