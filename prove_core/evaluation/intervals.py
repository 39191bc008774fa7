"""95 % confidence intervals of shares: one share, and the difference of two shares of the same trials."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

_Z = 1.959963984540054  # 97.5 % of a standard normal lie below


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`. It need not be centred on the estimate: `half_width` is half its length."""

    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval's length."""
        return (self.high - self.low) / 2


def wilson(successes: int, trials: int) -> Interval:
    """Wilson's score interval of a share (E. B. Wilson 1927). `trials` is at least 1."""
    share, weight = successes / trials, _Z * _Z / trials
    centre = (share + weight / 2) / (1 + weight)
    half = _Z * sqrt(share * (1 - share) / trials + weight / (4 * trials)) / (1 + weight)
    return Interval(max(0.0, centre - half), min(1.0, centre + half))


def paired_difference(first: Sequence[bool], second: Sequence[bool]) -> Interval:
    """Of share(second) - share(first), where `first[i]` and `second[i]` are outcomes of the same trial, at least one.

    Two Wilson intervals, combined with the correlation of the pairs: method 10 of R. G. Newcombe, "Improved confidence
    intervals for the difference between binomial proportions based on paired data" (Statistics in Medicine 17, 1998).
    """
    trials, x, y = len(first), sum(first), sum(second)
    one, two, phi = wilson(x, trials), wilson(y, trials), _correlation(first, second)
    below = _combined(y / trials - two.low, one.high - x / trials, phi)
    above = _combined(two.high - y / trials, x / trials - one.low, phi)
    difference = (y - x) / trials
    return Interval(difference - below, difference + above)


def _combined(a: float, b: float, phi: float) -> float:
    return sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))


def _correlation(first: Sequence[bool], second: Sequence[bool]) -> float:
    """The pairs' phi coefficient, a positive one corrected for continuity; 0 where a share is 0 or 1."""
    pairs = list(zip(first, second, strict=True))
    both, neither = pairs.count((True, True)), pairs.count((False, False))
    excess: float = both * neither - pairs.count((True, False)) * pairs.count((False, True))
    if excess > 0:
        excess = max(0.0, excess - len(pairs) / 2)
    x, y, n = sum(first), sum(second), len(pairs)
    margins = x * (n - x) * y * (n - y)
    return excess / sqrt(margins) if margins else 0.0
