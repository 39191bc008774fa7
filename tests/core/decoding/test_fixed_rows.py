"""Mode `fused`: which rows a pass runs where so many are given."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.drafts import Drafts
from prove_core.decoding.fixed_rows import FixedRows, outlook
from prove_core.decoding.lookup import NO_REPEAT
from prove_core.decoding.plan import AR_PASS
from prove_core.types import IDENTITY, Alternative, Branch

chances = st.floats(0.0, 1.0)
others = st.tuples(st.integers(0, 2), st.lists(chances, min_size=1, max_size=2))


@given(st.lists(chances, max_size=7), st.lists(others, max_size=3), st.integers(1, 24), st.integers(1, 12))
def test_a_pass_has_no_more_rows_and_proposes_nothing_beyond_the_end(
    confidences: list[float], ways: list[tuple[int, list[float]]], rows: int, room: int
) -> None:
    confidences = confidences[: room - 1]
    alternatives = tuple(
        Alternative(at, tuple(range(len(path))), tuple(path)) for at, path in ways if at < len(confidences)
    )
    drafts = Drafts((0,) * len(confidences), tuple(confidences), alternatives)
    plan = FixedRows(rows, 7, IDENTITY).plan(drafts, NO_REPEAT, room)
    assert plan.tokens + plan.placeholders <= rows
    assert [branch.accepted for branch in plan.branches] == sorted({branch.accepted for branch in plan.branches})
    for branch in plan.branches:
        assert branch.accepted <= plan.drafts
        assert branch.accepted + 1 + branch.placeholders + 1 <= room, "drafts that could not be committed"


def test_rows_go_where_they_are_worth_most() -> None:
    planner = FixedRows(12, 3, IDENTITY)
    sure = planner.plan(Drafts((1, 2), (1.0, 1.0)), NO_REPEAT, 100)
    assert (sure.drafts, sure.branches) == (2, (Branch(2, 3),))
    hopeless = planner.plan(Drafts((1, 2), (1.0, 0.0)), NO_REPEAT, 100)
    assert (hopeless.drafts, hopeless.branches) == (1, (Branch(1, 3),))
    other = Alternative(1, (9,), (0.9,))
    doubtful = FixedRows(4, 1, IDENTITY).plan(Drafts((1, 2), (1.0, 0.05), (other,)), NO_REPEAT, 100)
    assert doubtful.alternatives == (other,), "likelier than any other row"
    assert FixedRows(1, 3, IDENTITY).plan(Drafts((1,), (0.9,)), NO_REPEAT, 100) is AR_PASS
    assert FixedRows(9, 0, IDENTITY).plan(Drafts((), ()), NO_REPEAT, 100) is AR_PASS


def test_what_is_left_of_a_block_needs_fewer_new_placeholders() -> None:
    """Two stops as likely: the row goes behind the one where nothing is left."""
    for left, accepted in ((2, 1), (0, 0)):
        drafts = Drafts((1,), (0.499,), left=left)
        plan = FixedRows(3, 1, IDENTITY).plan(drafts, NO_REPEAT, 100)
        assert plan.branches == (Branch(accepted, 1),)


def test_the_outlook_follows_what_happens() -> None:
    before = good = bad = [0.6, 0.4, 0.2]
    for _ in range(50):
        good, bad = outlook(good, 3, 3), outlook(bad, 3, 1)
    assert good == pytest.approx([1.0, 1.0, 1.0], abs=0.01)
    assert bad == pytest.approx([1.0, 0.0, 0.0], abs=0.01)
    assert outlook(before, 0, 0) == before
    assert outlook(before, 1, 1)[1:] == before[1:], "what was not drafted teaches nothing"


def test_only_new_drafts_teach() -> None:
    """What is left of a block matches less often, and says nothing of what a new one is worth."""
    old, new = FixedRows(7, 3, IDENTITY), FixedRows(7, 3, IDENTITY)
    for planner, count in ((old, 0), (new, 3)):
        for _ in range(64):
            planner.plan(Drafts((1, 2, 3), (0.9, 0.9, 0.9), new=count), NO_REPEAT, 100)
            planner.learn(3, 0)
    hopeful, doubtful = (planner.plan(Drafts((), ()), NO_REPEAT, 100) for planner in (old, new))
    assert hopeful.placeholders == 3
    assert doubtful is AR_PASS
