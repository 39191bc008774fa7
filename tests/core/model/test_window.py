"""What comes of a window and which of its groups are in use, against the sequence itself."""

from dataclasses import replace

from hypothesis import given

from prove_core.model.window import ChosenGroup, Verdict
from tests.core.model.windows import ReadWindow, read_windows


@given(read_windows())
def test_what_comes_of_a_window_is_the_models_own(read: ReadWindow) -> None:
    window = read.window
    verdict = window.verdict(read.argmax, read.behind)
    kept = max(n for n in range(len(window.tokens) + 1) if read.stands([*window.before, *window.tokens[:n]]))
    assert verdict == Verdict(kept, tuple(read.sequence[window.start + kept :]))
    assert list(window.context(verdict)) == read.sequence


@given(read_windows())
def test_the_latest_group_that_saw_only_what_stands_and_goes_on_behind_it_is_in_use(read: ReadWindow) -> None:
    window, found = read.window, {}
    row = window.logits + sum(side.count for side in window.sides)
    for group in window.groups:
        index = window.start + group.after + 2  # its first row stands where the token after `after` does
        known = len(read.sequence) - index
        if read.stands([*window.before, *window.tokens[: group.after + 1]]) and known < group.count:
            verdict = window.verdict(read.argmax, read.behind)
            found[index] = ChosenGroup(row, group.count, index, known, verdict)
        row += group.count
    assert window.chosen(read.argmax, read.behind) == ([found[max(found)]] if found else [])
    assert all(group.known >= 0 for group in found.values())


@given(read_windows())
def test_every_group_is_in_use_behind_the_token_that_it_follows(read: ReadWindow) -> None:
    window = replace(read.window, every=True)
    row = window.logits + window.side_rows
    for group, chosen in zip(window.groups, window.chosen(read.argmax, read.behind), strict=True):
        said = read.argmax[group.after - (len(window.tokens) - window.logits)]
        assert list(window.context(chosen.verdict)) == [*window.before, *window.tokens[: group.after + 1], said]
        assert (chosen.row, chosen.count, chosen.known) == (row, group.count, 0)
        assert chosen.index == window.start + group.after + 2
        row += group.count


@given(read_windows())
def test_a_prefill_chunk_has_no_group_in_use(read: ReadWindow) -> None:
    assert replace(read.window, logits=0, sides=()).chosen((), ()) == []
