"""Which placeholders a fused pass runs: against the best of all choices, found slowly."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.fusion import no_drafts, observed, plan_branches, stop_chances
from prove_core.types import Branch

chances = st.floats(0.0, 1.0)
falling = st.lists(st.floats(0.3, 1.0), min_size=1, max_size=3).map(
    lambda rates: tuple(rate**depth for depth, rate in enumerate(sorted(rates, reverse=True), start=1))
)


@given(st.lists(chances, max_size=8))
def test_verification_stops_somewhere(confidences: list[float]) -> None:
    stops = stop_chances(confidences)
    assert len(stops) == len(confidences) + 1
    assert sum(stops) == pytest.approx(1.0)
    assert all(chance >= -1e-12 for chance in stops)


@given(st.lists(chances, max_size=3), falling, st.integers(0, 8))
def test_no_other_choice_of_rows_is_expected_to_commit_more(
    confidences: list[float], outlook: tuple[float, ...], rows: int
) -> None:
    branches = plan_branches(confidences, outlook, rows, room=100)
    assert sum(branch.placeholders for branch in branches) <= rows
    assert [branch.accepted for branch in branches] == sorted({branch.accepted for branch in branches})
    stops = stop_chances(confidences)

    def worth(counts: tuple[int, ...]) -> float:
        return sum(stop * sum(outlook[:count]) for stop, count in zip(stops, counts, strict=True))

    found = [0] * len(stops)
    for branch in branches:
        found[branch.accepted] = branch.placeholders
    best = max(worth(counts) for counts in product(range(len(outlook) + 1), repeat=len(stops)) if sum(counts) <= rows)
    neglected = 0.02 * min(rows, len(stops) * len(outlook))  # rows that are hardly worth anything are left out
    assert worth(tuple(found)) >= best - neglected - 1e-9


@given(st.lists(st.floats(0.5, 1.0), max_size=5), st.integers(1, 12))
def test_nothing_is_proposed_beyond_the_end(confidences: list[float], room: int) -> None:
    for branch in plan_branches(confidences, (0.9,) * 7, 50, room):
        committed = branch.accepted + 1
        assert committed + branch.placeholders + 1 <= room, "drafts that could not be committed"


def test_a_certain_draft_gets_the_only_branch() -> None:
    assert plan_branches((1.0, 1.0), (0.9, 0.8), 10, 100) == (Branch(2, 2),)
    assert plan_branches((1.0, 0.0), (0.9, 0.8), 10, 100) == (Branch(1, 2),)
    assert plan_branches((), (0.9, 0.8), 1, 100) == (Branch(0, 1),)


def test_the_outlook_follows_what_happens() -> None:
    outlook = no_drafts(4).outlook
    assert len(outlook) == 3
    good = bad = outlook
    for _ in range(50):
        good, bad = observed(good, 3, 3), observed(bad, 3, 1)
    assert good == pytest.approx((1.0, 1.0, 1.0), abs=0.01)
    assert bad == pytest.approx((1.0, 0.0, 0.0), abs=0.01)
    assert observed(outlook, 0, 0) == outlook
    assert observed(outlook, 1, 1)[1:] == outlook[1:], "what was not drafted teaches nothing"
