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


FREE = PassCost(rows=((1, 1e-3),), extra=((1, 0.0),), window=0.0)  # all passes alike, as where there is no model


def fitted(rows: Sequence[tuple[int, float]], extra: Sequence[tuple[int, float]], window: float) -> PassCost:
    """From noisy measurements by ascending size: the nearest curves that never fall, nor go below 0."""
    return PassCost(_rising(rows), _rising(extra), max(0.0, window))


def corrected(cost: PassCost, tokens: int, placeholders: int, *, ratio: float, weight: float) -> PassCost:
    """`cost` after a pass of such a shape took `ratio` times its seconds: sizes near it move by `ratio ** weight`."""
    rows = _scaled(cost.rows, tokens + placeholders, ratio**weight)
    extra = _scaled(cost.extra, placeholders, ratio**weight) if placeholders else cost.extra
    return PassCost(_rising(rows), _rising(extra), cost.window)


def _at(knots: Knots, size: int) -> float:
    index = bisect_left(knots, (size,))
    if index == 0:
        return knots[0][1]
    if index == len(knots):
        if len(knots) == 1:
            return knots[0][1]
        index -= 1
    (left, low), (right, high) = knots[index - 1], knots[index]
    return low + (high - low) * (size - left) / (right - left)


def _scaled(knots: Knots, size: int, factor: float) -> list[tuple[int, float]]:
    """The two knots around `size` multiplied, each as much as it is near."""
    index = min(max(bisect_left(knots, (size,)), 1), max(len(knots) - 1, 1))
    left = knots[index - 1][0]
    right = knots[index][0] if index < len(knots) else left + 1
    share = min(max((size - left) / (right - left), 0.0), 1.0)
    shares = {index - 1: 1.0 - share, index: share}
    return [(at, seconds * factor ** shares.get(i, 0.0)) for i, (at, seconds) in enumerate(knots)]


def _rising(knots: Sequence[tuple[int, float]]) -> Knots:
    """Isotonic regression: neighbours that fall are pooled at their mean."""
    pools: list[tuple[float, int]] = []  # sum and number
    for _, seconds in knots:
        pools.append((max(0.0, seconds), 1))
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] > pools[-1][0] * pools[-2][1]:
            (total, count), (more, further) = pools[-2], pools.pop()
            pools[-1] = (total + more, count + further)
    means = [total / count for total, count in pools for _ in range(count)]
    return tuple((size, mean) for (size, _), mean in zip(knots, means, strict=True))
