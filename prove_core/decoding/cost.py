"""What a forward pass costs: seconds by its rows, interpolated between measured sizes. Pure functions.

Tokens and placeholders cost a row each; placeholders cost extra (an adapter's rows, a sequential head's walk), and the
first one most of it. Windows cost something each, whatever is in them.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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

    def by_rows(self, most: int) -> list[float]:
        """`of_rows` of 0, 1, ... `most` rows."""
        return _every(self.rows, most)

    def by_placeholders(self, most: int) -> list[float]:
        """`of_placeholders` of 0, 1, ... `most` placeholders."""
        return [0.0, *_every(self.extra, most)[1:]]


_NOISE = 0.01  # variance of the logarithm of a pass's seconds
_PACE = 0.0025  # of the pace, from one pass to the next
_UNSEEN, _SETTLED = 0.09, 0.0002  # of a size's seconds: after the measurement at start, and once many passes had it
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
    follows that. What a pass deviates by is put down to the pace and to the sizes next to it, to each as much as it
    may be to blame: as it bears on this pass, and as little as is known of it (a Kalman filter of logarithms). A
    measurement at start is a few passes at best, so the first passes of a size move it by much.
    """

    def __init__(self, cost: PassCost) -> None:
        self.cost = cost
        self.pace = 1.0
        self._rows = [_UNSEEN] * len(cost.rows)
        self._extra = [_UNSEEN] * len(cost.extra)

    def follow(self, tokens: int, placeholders: int, windows: int, seconds: float) -> float:
        """A pass of such a shape took so long: answers of what was expected, as far as that is believed.

        One without a duration says nothing.
        """
        cost = self.cost
        expected = cost.seconds(tokens, placeholders, windows)
        if seconds <= 0.0 or expected <= 0.0:
            return 1.0
        ratio = min(max(seconds / (self.pace * expected), 1.0 / _WILDEST), _WILDEST)
        rows = _parts(cost.rows, tokens + placeholders, expected)
        extra = _parts(cost.extra, placeholders, expected) if placeholders else []
        doubt = _NOISE + _PACE
        doubt += sum(part * part * self._rows[index] for index, part in rows)
        doubt += sum(part * part * self._extra[index] for index, part in extra)
        news = math.log(ratio) / doubt
        self.pace *= math.exp(news * _PACE)
        self.cost = PassCost(
            _moved(cost.rows, rows, news, self._rows, doubt),
            _moved(cost.extra, extra, news, self._extra, doubt) if extra else cost.extra,
            cost.window,
        )
        return ratio


def _parts(knots: Knots, size: int, expected: float) -> list[tuple[int, float]]:
    """The knots next to `size`, and how much of the seconds `expected` of a pass each stands for."""
    return [(index, share * knots[index][1] / expected) for index, share in _shares(knots, size) if share]


def _moved(knots: Knots, parts: list[tuple[int, float]], news: float, variances: list[float], doubt: float) -> Knots:
    """The knots in `parts` moved by what is new, each as much as it may be to blame; `variances` shrink.

    Larger ones that no pass has been near follow: what was wrong at start was wrong for all.
    """
    factors = [1.0] * len(knots)
    for index, part in parts:
        blame = part * variances[index]
        factors[index] = math.exp(news * blame)
        variances[index] = max(_SETTLED, variances[index] * (1.0 - part * blame / doubt))
    for index in range(1, len(knots)):
        if variances[index] == _UNSEEN:
            factors[index] = factors[index - 1]
    moved = [(size, seconds * factor) for (size, seconds), factor in zip(knots, factors, strict=True)]
    if all(before[1] <= after[1] for before, after in pairwise(moved)):
        return tuple(moved)
    return _rising(moved, [1.0 / variance for variance in variances])


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


def _every(knots: Knots, most: int) -> list[float]:
    """`_at` of 0, 1, ... `most`, without a search for each."""
    (first, low), last = knots[0], knots[-1][0]
    values = [low] * (first + 1)
    for (left, before), (right, after) in pairwise(knots):
        slope = (after - before) / (right - left)
        values.extend(before + slope * size for size in range(1, right - left + 1))
    values.extend(_at(knots, size) for size in range(last + 1, most + 1))
    return values[: most + 1]


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
