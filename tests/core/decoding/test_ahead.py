"""What the next pass can count on: against sums over every draft."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.ahead import NOTHING, STILL, ahead

promises = st.lists(st.floats(0.0, 1.0), max_size=6).map(lambda values: sorted(values, reverse=True))


@given(promises, st.integers(-1, 9))
def test_a_whole_new_block_is_worth_its_promise_whatever_is_left(promise: list[float], rows: int) -> None:
    found = ahead(promise)
    assert found.worth(rows) + sum(found.placeholders(rows)) == pytest.approx(sum(promise))
    assert list(found.placeholders(rows)) == sorted(found.placeholders(rows), reverse=True)
    assert all(value >= -1e-12 for value in found.placeholders(rows))


@given(promises)
def test_what_is_left_is_worth_less_than_what_is_new(promise: list[float]) -> None:
    found = ahead(promise)
    assert found.placeholders(0) == pytest.approx(promise)
    worths = [found.worth(rows) for rows in range(len(promise) + 1)]
    assert worths == sorted(worths)
    expected = sum(value * STILL ** (depth + 1) for depth, value in enumerate(promise))
    assert worths[-1] == pytest.approx(expected)


def test_where_nothing_is_proposed() -> None:
    assert (NOTHING.worth(5), NOTHING.placeholders(5)) == (0.0, ())
    found = ahead([0.8, 0.5])
    assert (found.alone.worth(2), found.alone.placeholders(2)) == (found.worth(2), ())
