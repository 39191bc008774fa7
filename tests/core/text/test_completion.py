"""What the user gets must not depend on how tokens were grouped into commits."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.text.completion import CompletionText
from prove_core.types import Step
from tests.core.text.vocabularies import byte_level, encode, sentencepiece

BYTE_LEVEL, SENTENCEPIECE = byte_level(), sentencepiece()


def run(ids: list[int], sizes: list[int], stops: list[str], min_tokens: int = 0) -> tuple[list[str], int, bool]:
    """(deltas, tokens, stopped) of a completion whose ids arrive in commits of these sizes, over and over."""
    completion = CompletionText(BYTE_LEVEL, stops, min_tokens=min_tokens)
    texts: list[str] = []
    start = index = 0
    while start < len(ids):
        size = sizes[index % len(sizes)]
        fed = completion.feed(Step(tuple(ids[start : start + size])))
        texts.append(fed.text)
        if fed.stopped:
            return texts, completion.tokens, True
        start, index = start + size, index + 1
    return [*texts, completion.finish()], completion.tokens, False


@given(
    text=st.text("abc 😀é", max_size=40),
    stops=st.lists(st.text("abc 😀é", min_size=1, max_size=4), max_size=3),
    sizes=st.lists(st.integers(1, 16), min_size=1, max_size=5),
    min_tokens=st.integers(0, 10),
)
def test_grouping_changes_nothing(text: str, stops: list[str], sizes: list[int], min_tokens: int) -> None:
    ids = encode(BYTE_LEVEL, text)
    alone, tokens, stopped = run(ids, [1], stops, min_tokens)
    grouped, *rest = run(ids, sizes, stops, min_tokens)
    assert "".join(grouped) == "".join(alone)
    assert rest == [tokens, stopped]
    if not stopped:
        assert "".join(alone) == text


@given(
    text=st.text("abc 😀é", max_size=40),
    guesses=st.lists(st.text("abc 😀é", max_size=6), min_size=1, max_size=4),
    stops=st.lists(st.text("abc 😀é", min_size=1, max_size=4), max_size=2),
    size=st.integers(1, 7),
    data=st.data(),
)
def test_pieces_are_the_text_and_rejected_candidates_leave_no_trace_in_it(
    text: str, guesses: list[str], stops: list[str], size: int, data: st.DataObject
) -> None:
    ids = encode(BYTE_LEVEL, text)
    plain, traced = CompletionText(BYTE_LEVEL, stops), CompletionText(BYTE_LEVEL, stops)
    for start in range(0, len(ids), size):
        tokens = tuple(ids[start : start + size])
        accepted = data.draw(st.integers(0, len(tokens)))
        rejected = tuple(encode(BYTE_LEVEL, data.draw(st.sampled_from(guesses))))
        step = Step(tokens, accepted + len(rejected), accepted)
        without, fed = plain.feed(step), traced.feed(replace(step, rejected=rejected))
        assert (fed.text, fed.pieces, fed.stopped) == (without.text, without.pieces, without.stopped)
        assert len(fed.pieces) == len(fed.step.tokens)
        assert len(fed.rejected) == (0 if fed.stopped else len(rejected))
        if fed.stopped:
            assert not fed.step.rejected
            return
    assert traced.finish() == plain.finish()


def test_a_rejected_candidate_reads_as_it_would_have_in_its_place() -> None:
    """Its space, and the bytes of a character that an accepted token began."""
    completion = CompletionText(SENTENCEPIECE)
    the, *end = encode(SENTENCEPIECE, "the end")
    fed = completion.feed(Step((the,), 3, 1, rejected=tuple(end)))
    assert (fed.text, fed.rejected) == ("the", (" ", "end"))
    first, *rest = encode(BYTE_LEVEL, "😀")
    fed = CompletionText(BYTE_LEVEL).feed(Step((first, *encode(BYTE_LEVEL, "a")), 4, 1, rejected=tuple(rest)))
    assert fed.rejected == ("", "", "😀")


@pytest.mark.parametrize("block", [1, 4, 16])
@pytest.mark.parametrize("stop", ["STOP", "😀!", "ST\nOP", " STOP"])
def test_stop_string_shifted_over_commit_boundaries(block: int, stop: str) -> None:
    for filler in range(16):
        prefix = "." * filler
        ids = encode(BYTE_LEVEL, f"{prefix}answer{stop} and then more text")
        deltas, tokens, stopped = run(ids, [block], [stop])
        assert stopped
        assert "".join(deltas) == f"{prefix}answer"
        assert (tokens, stopped) == run(ids, [1], [stop])[1:]


def test_a_step_is_cut_after_the_token_that_completes_the_stop_string() -> None:
    ids = encode(SENTENCEPIECE, "the end the the")
    completion = CompletionText(SENTENCEPIECE, ["nd"])
    fed = completion.feed(Step(tuple(ids), drafted=len(ids), accepted=len(ids) - 1))
    assert fed.stopped
    assert fed.text == "the e"
    assert fed.step == Step(tuple(ids[:3]), drafted=len(ids), accepted=3)
    assert completion.tokens == 3


def test_a_cut_beyond_the_accepted_tokens_leaves_their_number() -> None:
    completion = CompletionText(SENTENCEPIECE, ["d"])
    ids = encode(SENTENCEPIECE, "abcdefg")
    assert completion.feed(Step(tuple(ids), drafted=7, accepted=1)).step.accepted == 1


def test_a_held_back_tail_is_flushed_at_the_end() -> None:
    completion = CompletionText(BYTE_LEVEL, ["</answer>"])
    fed = completion.feed(Step(tuple(encode(BYTE_LEVEL, "42 </ans"))))
    assert (fed.text, fed.stopped) == ("42 ", False)
    assert completion.finish() == "</ans"


def test_min_tokens_counts_tokens_before_a_stop_string_counts() -> None:
    ids = encode(BYTE_LEVEL, "....XXXX")
    single = encode(BYTE_LEVEL, "X")
    assert len(single) == 1
    deltas, tokens, stopped = run([*single * 8], [16], ["X"], min_tokens=5)
    assert (deltas, tokens, stopped) == (["XXXX"], 5, True)
    assert run(ids, [16], ["X"])[0] == ["...."]


def test_nothing_at_all() -> None:
    completion = CompletionText(BYTE_LEVEL, ["x"])
    assert completion.feed(Step(())).text == ""
    assert completion.finish() == ""
    assert completion.tokens == 0
