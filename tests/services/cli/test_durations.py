import pytest

from services.cli.durations import in_words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (3599, "59 min"),
        (3600, "1 h 00 min"),
        (7500, "2 h 05 min"),
        (86399, "23 h 59 min"),
        (273600, "3 d 4 h"),
    ],
)
def test_two_units_at_most(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
