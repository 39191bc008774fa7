"""Intervals against published figures, and against their promise: to cover the truth about 95 times in 100."""

from collections.abc import Iterator
from math import comb

import pytest

from prove_core.evaluation.intervals import paired_difference, wilson


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_as_in_newcombes_table(successes: int, trials: int, low: float, high: float) -> None:
    found = wilson(successes, trials)
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))
    assert found.half_width == pytest.approx((high - low) / 2, abs=5e-5)


def pairs(both: int, first: int, second: int, neither: int) -> tuple[list[bool], list[bool]]:
    """Outcomes with these counts: both right, only the first, only the second, neither."""
    return (
        [True] * (both + first) + [False] * (second + neither),
        [True] * both + [False] * first + [True] * second + [False] * neither,
    )


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [((1, 7, 1, 12), -0.507, -0.026), ((20, 2, 12, 16), 0.056, 0.329)],
)
def test_a_paired_difference_as_published(counts: tuple[int, int, int, int], low: float, high: float) -> None:
    found = paired_difference(*pairs(*counts))
    assert (found.low, found.high) == (pytest.approx(low, abs=5e-4), pytest.approx(high, abs=5e-4))
    turned = paired_difference(*reversed(pairs(*counts)))
    assert (turned.low, turned.high) == (pytest.approx(-found.high), pytest.approx(-found.low))


def tables(trials: int) -> Iterator[tuple[int, int, int, int]]:
    for both in range(trials + 1):
        for first in range(trials - both + 1):
            for second in range(trials - both - first + 1):
                yield both, first, second, trials - both - first - second


@pytest.mark.parametrize(
    "truth", [(0.1, 0.1, 0.1, 0.7), (0.3, 0.05, 0.1, 0.55), (0.25, 0.25, 0.25, 0.25), (0.02, 0.02, 0.06, 0.9)]
)
def test_a_paired_difference_covers_the_truth(truth: tuple[float, float, float, float]) -> None:
    covered = 0.0
    for table in tables(12):
        left, chance = 12, 1.0
        for count, share in zip(table, truth, strict=True):
            chance *= comb(left, count) * share**count
            left -= count
        found = paired_difference(*pairs(*table))
        covered += chance * (found.low <= truth[2] - truth[1] + 1e-12 and truth[2] - truth[1] - 1e-12 <= found.high)
    assert covered > 0.93


def test_equal_outcomes_of_more_trials_leave_less_room() -> None:
    few, many = (paired_difference([True, False] * n, [True, False] * n) for n in (6, 600))
    assert few.low <= 0 <= few.high
    assert many.half_width < few.half_width / 10
