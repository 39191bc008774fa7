"""What is learnt from requests that ended."""

from hypothesis import given
from hypothesis import strategies as st

from services.admission.rate import Expected, Rate


@given(st.integers(1, 4000), st.integers(1, 8192))
def test_equal_completions_are_soon_expected(tokens: int, limit: int) -> None:
    expected = Expected()
    for _ in range(300):
        expected.observe(tokens)
    assert expected.tokens(limit) == min(limit, expected.tokens(10**6))
    assert tokens <= expected.tokens(10**6) + 1 <= tokens * 1.02 + 3


@given(st.lists(st.integers(1, 1000), min_size=100, max_size=100, unique=True))
def test_few_completions_are_longer_than_expected(lengths: list[int]) -> None:
    expected = Expected()
    for _ in range(5):
        for length in lengths:
            expected.observe(length)
    assert sum(length > expected.tokens(10**6) for length in lengths) <= 25


def test_nothing_is_expected_beyond_the_limit() -> None:
    assert Expected().tokens(7) == 7
    assert Expected().tokens(8192) == 512


def test_the_rate_is_that_of_the_last_minute() -> None:
    rate = Rate()
    assert rate.seconds_for(100, 0.0) is None
    rate.add(1000, 0.0)
    rate.add(1000, 10.0)
    assert rate.seconds_for(400, 20.0) == 4.0
    assert rate.seconds_for(100, 200.0) is None
    for second in range(100_000):
        rate.add(1, float(second))
    assert len(rate._ended) <= 61, "nothing piles up in a server that refuses nobody"
