"""Of which rows blocks in use are made: each predicts the index that it should, behind what was committed."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from prove_core.model.in_use import InUse, in_use
from prove_core.model.window import Remnant, Window, WindowOutput
from prove_core.types import SamplingParams
from tests.core.model.windows import ReadWindow, read_windows

DRAWS = SamplingParams(1, temperature=1.0)
remnants = st.one_of(st.none(), st.builds(Remnant, st.integers(1, 16), st.integers(1, 8), st.just(None), st.booleans()))


def blocks(reads: list[ReadWindow]) -> list[InUse]:
    outputs = [WindowOutput(read.argmax, (), (), behind=read.behind) for read in reads]
    return in_use([read.window for read in reads], outputs, sampled_only=False)


def rows_of(windows: list[Window]) -> list[tuple[int, int]]:
    """Of each output of a pass its window, and the index in that one's sequence which it predicts."""
    rows = []
    for number, window in enumerate(windows):
        rows += [(number, index) for index in range(window.end - window.logits + 1, window.end + 1)]
        for part in window.parts:
            rows += [(number, window.start + part.after + 1 + j) for j in range(1, part.count + 1)]
    return rows


def with_remnant(read: ReadWindow, remnant: Remnant | None, draws: bool) -> ReadWindow:
    """Its sides are gone where it draws."""
    sampling = DRAWS if draws and not read.window.sides else None
    return replace(read, window=replace(read.window, remnant=remnant, sampling=sampling))


@given(st.lists(st.tuples(read_windows(), remnants, st.booleans()), min_size=1, max_size=3))
def test_each_row_predicts_the_token_in_its_place(made: list[tuple[ReadWindow, Remnant | None, bool]]) -> None:
    reads = [with_remnant(*each) for each in made]
    predicted = rows_of([read.window for read in reads])
    found = blocks(reads)
    assert [block.window for block in found] == sorted({block.window for block in found})
    for block in found:
        read = reads[block.window]
        places = [predicted[block.first + depth] for depth in range(block.rows)]
        places += [(block.window, block.tail.index + i) for i in range(block.tail_first, block.tail.count)]
        assert places == [(block.window, block.index + depth) for depth in range(block.length)]
        assert list(block.context) == read.sequence
        assert 0 <= block.known == len(read.sequence) - block.index < block.length
        befores = [block.before(depth) for depth in range(block.known + 1)]
        assert befores == read.sequence[block.index - 1 :]
        assert block.sampling is read.window.sampling
        assert block.keeps == (read.window.keeps and block.rows > 0)


@given(read_windows(), remnants, st.booleans())
def test_what_is_left_goes_on_where_nothing_newer_stands(read: ReadWindow, left: Remnant | None, draws: bool) -> None:
    """If it is made as the window's own blocks would be, and says something of what comes next."""
    read = with_remnant(read, left, draws)
    window, found = read.window, blocks([read])
    usable = left is not None and window.keeps and left.drawn == (window.sampling is not None)
    (group,) = window.chosen(read.argmax, read.behind) or [None]
    if group is not None:
        (block,) = found
        end = group.index + group.count
        assert (block.rows, block.index, block.known) == (group.count, group.index, group.known)
        reaches = usable and left is not None and left.index <= end < left.index + left.count
        assert block.tail_rows == (left.index + left.count - end if reaches and left is not None else 0)
    elif usable and left is not None and left.index <= len(read.sequence) < left.index + left.count:
        (block,) = found
        assert (block.rows, block.tail, block.tail_first) == (0, left, 0)
    else:
        assert found == []


@given(st.lists(st.tuples(read_windows(), remnants, st.booleans()), max_size=3))
def test_without_a_head_only_windows_that_sample_are_walked(
    made: list[tuple[ReadWindow, Remnant | None, bool]],
) -> None:
    reads = [with_remnant(*each) for each in made]
    outputs = [WindowOutput(read.argmax, (), (), behind=read.behind) for read in reads]
    found = in_use([read.window for read in reads], outputs, sampled_only=True)
    assert found == [block for block in blocks(reads) if block.sampling is not None]
