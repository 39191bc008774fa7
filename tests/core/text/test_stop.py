"""Stop strings, against a reference that sees the whole text at every step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.text.stop import StopMatcher

letters = st.text("ab", max_size=4)
pieces = st.lists(letters, max_size=12)
stops = st.lists(st.text("ab", min_size=1, max_size=5), max_size=3)


def reference(pieces: list[str], stops: list[str]) -> tuple[str, bool]:
    text = ""
    for piece in pieces:
        text += piece
        if starts := [text.find(stop) for stop in stops if stop in text]:
            return text[: min(starts)], True
    return text, False


def run(pieces: list[str], stops: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    shown = []
    for piece in pieces:
        text, stopped = matcher.push(piece)
        shown.append(text)
        if stopped:
            return shown, True
    return [*shown, matcher.finish()], False


@given(pieces, stops)
def test_equals_the_reference(pieces: list[str], stops: list[str]) -> None:
    shown, stopped = run(pieces, stops)
    assert ("".join(shown), stopped) == reference(pieces, stops)


@given(pieces, stops)
def test_holds_back_no_more_than_it_must(pieces: list[str], stops: list[str]) -> None:
    matcher = StopMatcher(stops)
    fed = shown = ""
    for piece in pieces:
        text, stopped = matcher.push(piece)
        if stopped:
            return
        fed, shown = fed + piece, shown + text
        held = fed[len(shown) :]
        assert not held or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize(
    ("pieces", "stops", "shown"),
    [
        (["hello wor", "ld"], ["wor", "hello"], [""]),
        (["one E", "ND two"], ["END"], ["one ", ""]),
        (["one E", "N", "D"], ["END"], ["one ", "", ""]),
        (["a E", "X"], ["END"], ["a ", "EX", ""]),
        (["aab", "c"], ["abc", "b c"], ["a", ""]),
        (["E"], ["END"], ["", "E"]),
    ],
)
def test_examples(pieces: list[str], stops: list[str], shown: list[str]) -> None:
    assert run(pieces, stops)[0] == shown


def test_below_min_tokens_a_stop_string_is_text() -> None:
    matcher = StopMatcher(["ab"])
    assert matcher.push("xab", armed=False) == ("xab", False)
    assert matcher.push("a", armed=False) == ("", False)
    assert matcher.push("b") == ("", True)


def test_a_stop_string_passed_over_is_not_found_later() -> None:
    matcher = StopMatcher(["ab", "abcd"])
    assert matcher.push("ab", armed=False) == ("", False)
    assert matcher.push("c") == ("", False)
    assert matcher.push("d") == ("", True)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])
