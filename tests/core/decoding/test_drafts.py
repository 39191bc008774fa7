"""Drafts in hand and alternatives to them: what may be committed, what is likely, what is left after a pass."""

from math import prod

from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.drafts import (
    WORTH_VERIFYING,
    Drafts,
    beginnings,
    carried,
    reach,
    within,
    worth_verifying,
)
from prove_core.decoding.limits import Budget
from prove_core.types import Alternative, Branch, Fused, Limits, Step

STOP = 9
tokens = st.lists(st.integers(0, STOP), max_size=6).map(tuple)


@st.composite
def alternatives(draw: st.DrawFn, length: int) -> tuple[Alternative, ...]:
    found = []
    for _ in range(draw(st.integers(0, 4)) if length else 0):
        path = draw(st.lists(st.integers(0, STOP), min_size=1, max_size=3))
        chances = [draw(st.floats(0, 1)) for _ in path]
        found.append(Alternative(draw(st.integers(0, length - 1)), tuple(path), tuple(chances)))
    return tuple(found)


@st.composite
def in_hand(draw: st.DrawFn) -> Drafts:
    block = draw(tokens)
    chances = tuple(draw(st.floats(0, 1)) for _ in block)
    return Drafts(block, chances, draw(alternatives(len(block))))


@given(in_hand(), st.integers(1, 8), st.integers(0, 4))
def test_all_that_is_verified_could_be_committed(drafts: Drafts, most: int, generated: int) -> None:
    budget = Budget(Limits(most + generated, frozenset({STOP})))
    if generated:
        budget.take(Step((0,) * generated))
    kept = within(budget, drafts)
    assert kept.tokens == drafts.tokens[: len(kept.tokens)]
    assert len(kept.confidences) == len(kept.tokens)
    for path in (kept.tokens, *(kept.tokens[: o.accepted] + o.tokens for o in kept.alternatives)):
        assert len(path) < most, "the pass adds a token of its own"
        assert STOP not in path[:-1]
    room = [o for o in drafts.alternatives if o.accepted < len(kept.tokens) and o.accepted < most - 1]
    assert [(o.accepted, o.tokens[0]) for o in kept.alternatives] == [(o.accepted, o.tokens[0]) for o in room]


@given(in_hand())
def test_what_is_worth_verifying_is_likely(drafts: Drafts) -> None:
    kept = worth_verifying(drafts)
    for other in kept:
        before = prod(drafts.confidences[: other.accepted])
        assert before * prod(other.confidences) >= WORTH_VERIFYING
    rows = sum(chance >= WORTH_VERIFYING for other in drafts.alternatives for chance in reach(drafts, other))
    assert sum(len(other.tokens) for other in kept) == rows


def test_beginnings_leave_out_what_is_not_wanted() -> None:
    first, second = Alternative(0, (1, 2, 3), (0.5, 0.4, 0.3)), Alternative(2, (4,), (0.1,))
    assert beginnings((first, second), {0: 2}) == (Alternative(0, (1, 2), (0.5, 0.4)),)
    assert beginnings((first, second), {1: 1}) == (second,)


@given(in_hand(), st.integers(0, 8), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5))), st.data())
def test_what_is_carried_knows_its_new_drafts(
    drafts: Drafts, most: int, branches: list[tuple[int, int]], data: st.DataObject
) -> None:
    """A branch where verification stopped has said them all but the tokens committed behind its first."""
    matched, committed = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 3))
    answer = Fused(
        (0,), drafts.tokens, drafts.confidences, alternatives=drafts.alternatives, kept=data.draw(st.booleans())
    )
    ran = [Branch(accepted, count) for accepted, count in dict(branches).items()]
    kept = carried(answer, most, ran, matched, committed)
    assert (kept.tokens, kept.confidences) == (drafts.tokens[:most], drafts.confidences[:most])
    assert set(kept.alternatives) == {other for other in drafts.alternatives if other.accepted < most}
    assert kept.new == min(most, max(0, dict(branches).get(matched, 0) - (committed - 1)))
    assert kept.left == len(drafts.tokens) * answer.kept
