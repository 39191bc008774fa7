"""What passes cost: curves that never fall, whatever was measured, and that follow what passes take."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.cost import FREE, LiveCost, PassCost, fitted

SIZES = (1, 2, 4, 8, 16, 32, 64)
times = st.floats(1e-4, 10.0)
curves = st.lists(times, min_size=7, max_size=7).map(lambda values: list(zip(SIZES, values, strict=True)))
costs = st.builds(fitted, curves, curves, st.floats(-1.0, 1.0))
shape = st.tuples(st.integers(1, 300), st.integers(0, 200), st.integers(1, 64))


@given(costs, shape, shape)
def test_more_of_anything_never_costs_less(
    cost: PassCost, one: tuple[int, int, int], two: tuple[int, int, int]
) -> None:
    low, high = map(min, one, two), map(max, one, two)
    assert 0.0 <= cost.seconds(*low) <= cost.seconds(*high) + 1e-12


@given(costs, st.lists(st.tuples(shape, st.floats(0.0, 10.0)), max_size=30), shape, shape)
def test_nor_after_passes_that_took_anything(
    cost: PassCost,
    passes: list[tuple[tuple[int, int, int], float]],
    one: tuple[int, int, int],
    two: tuple[int, int, int],
) -> None:
    live = LiveCost(cost)
    for (tokens, placeholders, windows), seconds in passes:
        live.follow(tokens, placeholders, windows, seconds)
    low, high = map(min, one, two), map(max, one, two)
    assert 0.0 <= live.cost.seconds(*low) <= live.cost.seconds(*high) + 1e-12


def test_measured_sizes_are_met_and_others_lie_between() -> None:
    cost = fitted([(1, 1.0), (4, 2.5), (8, 3.5)], [(2, 0.5), (6, 1.5)], 0.25)
    assert [cost.seconds(rows, 0) for rows in (1, 4, 6, 8, 12)] == pytest.approx([1.0, 2.5, 3.0, 3.5, 4.5])
    assert [cost.of_placeholders(rows) for rows in (0, 1, 2, 4, 6)] == pytest.approx([0.0, 0.5, 0.5, 1.0, 1.5])
    assert cost.seconds(2, 2, 3) == pytest.approx(2.5 + 0.5 + 2 * 0.25)


def test_a_large_pass_is_not_taken_to_cost_more_than_small_ones_together() -> None:
    assert fitted([(1, 1.0), (2, 9.0)], [(1, 0.0)], 0.0).seconds(2, 0) == pytest.approx(2.0)
    assert FREE.seconds(60, 60, 9) == FREE.seconds(1, 0)


def test_shapes_are_learnt_and_the_pace_of_the_machine_is_not() -> None:
    noise = random.Random(2)
    truth = PassCost(((1, 1.0), (8, 1.5), (64, 6.0)), ((1, 0.2), (48, 0.5)), 0.0)
    live = LiveCost(PassCost(((1, 1.0), (8, 3.0), (64, 6.0)), ((1, 0.2), (48, 0.5)), 0.0))
    for index in range(1500):
        busy = 1.0 if index < 700 else 3.0  # another process comes
        passes = [(1, 0), (4, 4), (64, 0)]
        tokens, placeholders = passes[index % 3]
        live.follow(
            tokens, placeholders, 1, truth.seconds(tokens, placeholders) * busy * noise.lognormvariate(0.0, 0.2)
        )
    found = live.cost.seconds(4, 4) / live.cost.seconds(1, 0)
    assert found == pytest.approx(truth.seconds(4, 4) / truth.seconds(1, 0), rel=0.15)


@pytest.mark.parametrize("wrong", [0.25, 4.0])
def test_what_is_known_least_is_to_blame(wrong: float) -> None:
    """Sizes measured while something else had the machine are mended by a few passes, and those well known stay."""
    truth = PassCost(((1, 1.0), (8, 1.5), (64, 6.0)), ((1, 0.2), (48, 0.5)), 0.0)
    live = LiveCost(PassCost(((1, 1.0), (8, max(1.0, 1.5 * wrong)), (64, 6.0 * wrong)), truth.extra, 0.0))
    for _ in range(1000):
        live.follow(1, 0, 1, truth.seconds(1, 0))
    for index in range(24):
        rows = (5, 1)[index % 2]
        live.follow(rows, 0, 1, truth.seconds(rows, 0))
    found = live.cost.seconds(5, 0) / live.cost.seconds(1, 0)
    assert found == pytest.approx(truth.seconds(5, 0) / truth.seconds(1, 0), rel=0.15)
    assert abs(math.log(live.cost.seconds(64, 0) / 6.0)) < abs(math.log(wrong)), "larger sizes follow"
