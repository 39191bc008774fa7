from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.evaluation.numbers import last_number, stated_result


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She makes 9 * 2 = $18 every day.", "18"),
        ("The answer is 18.00", "18"),
        ("**$70,000.**", "70000"),
        ("a profit of $1,234,567.50!", "1234567.5"),
        ("so 1, 2, 3", "3"),
        ("It is -5 degrees", "-5"),
        ("a loss of -$12.", "-12"),
        ("10-5", "5"),
        ("pages 3-7", "7"),
        ("20%", "20"),
        ("half of it: .5", "0.5"),
        ("7 (seven)", "7"),
    ],
)
def test_the_last_number(text: str, number: str) -> None:
    assert last_number(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "none at all", "twelve", "$", "-", "٣"])
def test_no_number(text: str) -> None:
    assert last_number(text) is None


@given(
    st.integers(-(10**9), 10**9), st.sampled_from(["", "1 and 2, so ", "= $", "3,000 or "]), st.sampled_from("., !)")
)
def test_numbers_as_people_write_them(value: int, before: str, after: str) -> None:
    for text in (str(value), f"{value:,}", f"{value}.00"):
        assert last_number(f"{before}{text}{after}") == value


@pytest.mark.parametrize(
    ("answer", "number"),
    [("2 + 3 = 5\n#### 5", Decimal(5)), ("#### 1\n#### 1,200", Decimal(1200)), ("it is 5", None), ("5 ####", None)],
)
def test_the_stated_result(answer: str, number: Decimal | None) -> None:
    assert stated_result(answer) == number
