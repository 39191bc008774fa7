"""The way that verification takes, against an obvious reference."""

from hypothesis import given
from hypothesis import strategies as st

from prove_core.model.path import match_length, taken_path
from prove_core.types import Alternative


def leading(flags: list[bool]) -> int:
    count = 0
    for flag in flags:
        if not flag:
            return count
        count += 1
    return count


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=12))
def test_match_length(pairs: list[tuple[int, int]]) -> None:
    block = [pair[0] for pair in pairs]
    argmax = [*(pair[1] for pair in pairs), 0]
    assert match_length(block, argmax) == leading([a == b for a, b in pairs])


IDS = st.integers(0, 2)


@given(
    st.lists(IDS, min_size=12, max_size=12),
    st.lists(IDS, max_size=6),
    st.lists(st.tuples(st.integers(0, 6), st.lists(IDS, min_size=1, max_size=3)), max_size=8),
    st.booleans(),
)
def test_the_path_taken_is_the_models_own(
    own: list[int], block: list[int], others: list[tuple[int, list[int]]], read: bool
) -> None:
    """A model that continues with `own`, and with something else behind whatever differs from it."""
    ways = {(accepted, tokens[0]): tokens for accepted, tokens in others if [tokens[0]] != block[accepted:][:1]}
    alternatives = [Alternative(at, tuple(tokens)) for (at, _), tokens in ways.items() if at <= len(block)]

    def after(path: list[int]) -> int:
        return own[len(path)] if path == own[: len(path)] else 9

    argmax = [after(block[:count]) for count in range(len(block) + 1)]
    behind = [
        tuple(after([*block[: a.accepted], *a.tokens[: count + 1]]) for count in range(len(a.tokens)))
        for a in alternatives
    ]
    candidates, accepted, following = taken_path(tuple(block), argmax, tuple(alternatives), behind if read else ())
    whole = [block, *([*block[: a.accepted], *a.tokens] for a in alternatives if read)]
    longest = max(leading([a == b for a, b in zip(way, own, strict=False)]) for way in whole)
    assert [*candidates[:accepted], following] == own[: longest + 1]
    assert [*candidates] in [[*way, *block[len(way) :]] for way in whole], "none that nobody followed counts"
