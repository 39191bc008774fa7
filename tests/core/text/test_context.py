"""Room for the completion in the context."""

import pytest

from prove_core.errors import ContextLengthExceeded
from prove_core.text.context import completion_limit


@pytest.mark.parametrize(
    ("prompt", "requested", "limit"), [(10, 5, 5), (10, None, 90), (99, None, 1), (99, 1, 1), (10, 90, 90)]
)
def test_what_fits(prompt: int, requested: int | None, limit: int) -> None:
    assert completion_limit(prompt, requested, 100) == limit


@pytest.mark.parametrize(
    ("prompt", "requested", "param", "numbers"),
    [
        (10, 91, "max_tokens", ["100", "101", "(10 in", "91 in"]),
        (100, 1, "messages", ["100"]),
        (250, None, "messages", ["100", "250"]),
        (3, 10**30, "max_tokens", [str(10**30 + 3)]),
    ],
)
def test_what_does_not_fit_says_the_true_numbers(
    prompt: int, requested: int | None, param: str, numbers: list[str]
) -> None:
    with pytest.raises(ContextLengthExceeded) as raised:
        completion_limit(prompt, requested, 100)
    assert raised.value.param == param
    assert all(number in str(raised.value) for number in numbers)
    assert "-" not in str(raised.value)
