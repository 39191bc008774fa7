"""Which placeholders a fused pass runs: against the best of all choices, found slowly."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.drafts import Drafts
from prove_core.decoding.fusion import no_drafts, observed, plan_rows, stop_chances
from prove_core.types import Alternative, Branch

chances = st.floats(0.0, 1.0)
falling = st.lists(st.floats(0.3, 1.0), min_size=1, max_size=3).map(
    lambda rates: tuple(rate**depth for depth, rate in enumerate(sorted(rates, reverse=True), start=1))
)


def _drafts(confidences: Sequence[float], outlook: tuple[float, ...]) -> Drafts:
    return Drafts((0,) * len(confidences), tuple(confidences), outlook)


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
    branches = plan_rows(_drafts(confidences, outlook), rows, room=100)[0]
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


others = st.tuples(st.integers(0, 2), st.lists(chances, min_size=1, max_size=2))


@given(st.lists(chances, min_size=3, max_size=3), falling, st.lists(others, max_size=3), st.integers(0, 8))
def test_rows_go_where_they_are_worth_most(
    confidences: list[float], outlook: tuple[float, ...], ways: list[tuple[int, list[float]]], rows: int
) -> None:
    alternatives = tuple(Alternative(at, tuple(range(len(path))), tuple(path)) for at, path in ways)
    drafts = replace(_drafts(confidences, outlook), alternatives=alternatives)
    branches, verified = plan_rows(drafts, rows, room=100)
    used = sum(branch.placeholders for branch in branches) + sum(len(other.tokens) for other in verified)
    assert used <= rows
    left = iter(alternatives)
    assert all(
        any(o.accepted == v.accepted and o.tokens[: len(v.tokens)] == v.tokens for o in left) for v in verified
    ), "beginnings of alternatives, in order"
    reached = [prod(confidences[:at]) * prod(path[: i + 1]) for at, path in ways for i in range(len(path))]
    stops = stop_chances(confidences)
    values = sorted([*reached, *(stop * depth for stop in stops for depth in outlook)], reverse=True)
    found = sum(
        prod(confidences[: o.accepted]) * prod(o.confidences[: i + 1]) for o in verified for i in range(len(o.tokens))
    ) + sum(stops[branch.accepted] * sum(outlook[: branch.placeholders]) for branch in branches)
    assert found >= sum(values[:rows]) - 0.02 * rows - 1e-9


@given(st.lists(st.floats(0.5, 1.0), max_size=5), st.integers(1, 12))
def test_nothing_is_proposed_beyond_the_end(confidences: list[float], room: int) -> None:
    for branch in plan_rows(_drafts(confidences, (0.9,) * 7), 50, room)[0]:
        committed = branch.accepted + 1
        assert committed + branch.placeholders + 1 <= room, "drafts that could not be committed"


def test_a_certain_draft_gets_the_only_branch() -> None:
    assert plan_rows(_drafts((1.0, 1.0), (0.9, 0.8)), 10, 100)[0] == (Branch(2, 2),)
    assert plan_rows(_drafts((1.0, 0.0), (0.9, 0.8)), 10, 100)[0] == (Branch(1, 2),)
    assert plan_rows(_drafts((), (0.9, 0.8)), 1, 100)[0] == (Branch(0, 1),)


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
