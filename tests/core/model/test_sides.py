"""Where side paths lie among keys, and which of them can be read."""

from hypothesis import given
from hypothesis import strategies as st

from prove_core.model.sides import placed, readable, spread
from prove_core.model.window import PlaceholderGroup, SidePath, Window

paths = st.builds(SidePath, st.integers(0, 7), st.lists(st.integers(0, 9), min_size=1, max_size=5).map(tuple))
groups = st.builds(PlaceholderGroup, st.integers(0, 7), st.integers(1, 5))
windows = st.builds(
    Window,
    tokens=st.just(range(8)),
    start=st.integers(0, 300),
    pages=st.just(range(100)),
    groups=st.lists(groups, max_size=2).map(tuple),
    logits=st.just(8),
    sides=st.lists(paths, max_size=6).map(tuple),
)


@given(windows, st.booleans())
def test_parts_lie_one_behind_the_other(window: Window, in_pairs: bool) -> None:
    end = window.end
    for part, at, again in placed(window, in_pairs=in_pairs):
        assert at >= max(end, window.follows(part))
        if in_pairs and isinstance(part, SidePath):
            assert (at - window.follows(part)) % 2 == 0
            assert again == at % 2, "an odd place is paired with that of the token before it"
            assert again <= at - end <= 2
        else:
            assert (at, again) == (end, 0)
        end = at + part.count
    assert end <= window.length


@given(windows, st.sampled_from([16, 64, 128]))
def test_what_is_read_lies_in_the_span_of_what_it_follows(window: Window, span: int) -> None:
    read = readable(window, span)
    left = iter(window.sides)
    assert all(side in left for side in read)
    kept = Window(window.tokens, window.start, window.pages, window.groups, window.logits, sides=tuple(read))
    for part, at, again in placed(kept, in_pairs=True):
        if isinstance(part, SidePath):
            assert {window.follows(part) // span} == {place // span for place in range(at - again, at + part.count)}
    if window.start % span + 8 + 6 * 7 <= span:
        assert read == list(window.sides)
    assert readable(window, None) == list(window.sides)
    assert readable(window, 0) == []


def test_what_was_not_read_says_nothing() -> None:
    sides = SidePath(0, (1,)), SidePath(0, (1,)), SidePath(2, (3, 4))
    assert spread(sides, sides[1:], [(7,), (8, 9)]) == ((), (7,), (8, 9))
