"""What a pass of mode `auto` verifies and proposes: against the best of all plans, found slowly."""

from collections.abc import Sequence
from itertools import accumulate, combinations, product
from operator import attrgetter, mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.ahead import NOTHING, ahead
from prove_core.decoding.cost import FREE, PassCost, fitted
from prove_core.decoding.plan import AR_PASS, WORTH, Other, Plan, RowCost, options, shared_cost


def plan_pass(
    likely: Sequence[float], promise: Sequence[float], cost: RowCost, price: float, room: int, least: float = 0.0
) -> Plan:
    """The plan of greatest worth."""
    return max(options(likely, ahead(promise), cost, price, room, least), key=attrgetter("worth")).plan()


chances = st.lists(st.floats(0.0, 1.0), max_size=3)
falling = st.lists(st.floats(0.3, 1.0), min_size=1, max_size=3).map(
    lambda rates: tuple(rate**depth for depth, rate in enumerate(sorted(rates, reverse=True), start=1))
)
# Half a pass is reading the weights, the other half grows by row: a processor that turns compute-bound early.
REALISTIC = PassCost(((1, 0.020), (8, 0.026), (16, 0.034), (32, 0.052), (64, 0.090)), ((1, 0.002), (48, 0.008)), 1e-4)
OUTLOOK = (0.85, 0.7, 0.55, 0.45, 0.35, 0.3, 0.25)


def costs(rows: list[float], extra: list[float]) -> PassCost:
    sizes = (1, 2, 4, 8)
    return fitted([*zip(sizes, sorted(rows), strict=True)], [*zip(sizes, sorted(extra), strict=True)], 0.0)


measured = st.lists(st.floats(0.01, 1.0), min_size=4, max_size=4)
cheap = st.lists(st.floats(0.0, 0.05), min_size=4, max_size=4)


def worth(
    drafts: int, counts: tuple[int, ...], likely: list[float], promise: tuple[float, ...], cost: RowCost, price: float
) -> float:
    """The worth of a plan, by its definition."""
    reach = [1.0, *accumulate(likely[:drafts], mul)]
    ends = [*reach[1:], 0.0]
    promised = sum(
        (here - further) * sum(promise[:count]) for here, further, count in zip(reach, ends, counts, strict=True)
    )
    return sum(reach[1:]) + promised - price * cost.seconds(drafts, sum(counts))


@given(
    chances,
    falling,
    st.builds(costs, measured, cheap),
    st.floats(0.1, 60.0),
    st.integers(1, 3),
    st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(0, 6)),
)
def test_no_other_plan_is_worth_more(
    likely: list[float],
    promise: tuple[float, ...],
    cost: PassCost,
    price: float,
    completions: int,
    others: tuple[int, int, int],
) -> None:
    shared = shared_cost(cost, completions, 30)
    planned = min(others[0], completions - 1)
    rows = shared.joined(planned, *others[1:]) if planned else shared.alike
    plan = plan_pass(likely, promise, rows, price, 100)
    found = [0] * (plan.drafts + 1)
    for branch in plan.branches:
        found[branch.accepted] = branch.placeholders
    assert plan.drafts + sum(found) < len(rows.rows)
    best = max(
        worth(drafts, counts, likely, promise, rows, price)
        for drafts in range(len(likely) + 1)
        for counts in product(range(len(promise) + 1), repeat=drafts + 1)
        if drafts + sum(counts) < len(rows.rows)
    )
    neglected = WORTH * 4 * 4  # drafts and rows that are hardly worth anything are not looked at
    assert worth(plan.drafts, tuple(found), likely, promise, rows, price) >= best - neglected - 1e-9


@given(
    chances,
    st.lists(st.tuples(st.integers(0, 2), st.floats(0.0, 1.0)), max_size=4),
    st.builds(costs, measured, cheap),
    st.floats(0.1, 60.0),
    st.integers(1, 3),
)
def test_alternatives_are_verified_where_they_pay(
    likely: list[float], ways: list[tuple[int, float]], cost: PassCost, price: float, completions: int
) -> None:
    """No alternative is likelier than the draft in its place."""
    others = [
        Other(accepted, share * min(likely[accepted], 1 - likely[accepted]), index)
        for index, (accepted, share) in enumerate(ways)
        if accepted < len(likely)
    ]
    rows = shared_cost(cost, completions, 30).alike
    best = max(options(likely, NOTHING, rows, price, 100, 0.0, others), key=lambda option: option.worth)
    reach = [1.0, *accumulate(likely, mul)]
    most = max(
        sum(reach[1 : drafts + 1]) + sum(reach[o.accepted] * o.chance for o in some) - price * rows.seconds(spent, 0)
        for drafts in range(len(likely) + 1)
        for count in range(len(others) + 1)
        for some in combinations([o for o in others if o.accepted < drafts], count)
        if (spent := drafts + count) < len(rows.rows)
    )
    assert all(ways[index][0] < best.drafts for index in best.others)
    assert best.worth >= most - WORTH * 3 * 5 - 1e-9
    assert best.worth <= most + 1e-9


def test_rows_cost_what_the_pass_of_all_comes_to() -> None:
    shared = shared_cost(REALISTIC, 3, 192)
    alone = REALISTIC.seconds(3, 0, 3)
    assert shared.ar == pytest.approx(alone)
    assert shared.alike.seconds(2, 4) == pytest.approx(REALISTIC.seconds(9, 12, 3) - alone)
    last = shared.joined(2, 5, 3)  # of three, two have planned: what the third adds delays all three
    added = REALISTIC.seconds(5 + 2, 3 + 1, 3) - REALISTIC.seconds(5 + 1, 3, 3)
    assert last.seconds(1, 1) == pytest.approx(3 * added)


def test_free_rows_are_all_used_and_dear_ones_are_not() -> None:
    free = shared_cost(FREE, 1, 192)
    plan = plan_pass([0.9, 0.8, 0.7], OUTLOOK, free.alike, 3 / free.ar, 100)
    assert plan.drafts == 3
    assert plan.placeholders > 15
    dear = shared_cost(PassCost(((1, 1.0), (64, 64.0)), ((1, 0.1),), 0.0), 1, 192)
    assert plan_pass([0.9, 0.8, 0.7], OUTLOOK, dear.alike, 1 / dear.ar, 100) == AR_PASS


def test_rows_become_fewer_as_more_completions_share_a_pass() -> None:
    rows = []
    for completions in (1, 2, 4, 8, 16, 32, 64):
        cost = shared_cost(REALISTIC, completions, 192)
        plan = plan_pass([0.9, 0.8, 0.6, 0.4], (0.6, 0.4, 0.2, 0.1), cost.alike, 1 / cost.ar, 100)
        rows.append(plan.drafts + plan.placeholders)
    assert rows == sorted(rows, reverse=True)
    assert rows[0] > 8
    assert rows[-1] <= 1, "a draft in hand that is likely"


@given(chances, st.integers(1, 8), st.booleans())
def test_nothing_is_proposed_beyond_the_end_or_unasked(likely: list[float], room: int, propose: bool) -> None:
    cost = shared_cost(FREE, 1, 192)
    drafts = likely[: room - 1]
    plan = plan_pass(drafts, OUTLOOK if propose else (), cost.alike, 0.0, room)
    assert propose or not plan.branches
    for branch in plan.branches:
        assert branch.accepted + 1 + branch.placeholders + 1 <= room, "drafts that could not be committed"


@pytest.mark.parametrize("completions", [1, 100, 500])
def test_there_is_always_room_for_the_next_token(completions: int) -> None:
    cost = shared_cost(REALISTIC, completions, 192)
    plan = plan_pass([0.9] * 7, OUTLOOK, cost.alike, 0.0, 100)
    assert 1 + plan.drafts + plan.placeholders <= max(1, 192 // completions)


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.lists(st.floats(0.0, 1.0), max_size=7), st.integers(1, 20)), min_size=1, max_size=40),
)
def test_all_who_share_a_pass_have_room_for_their_next_token(
    max_rows: int, sessions: list[tuple[list[float], int]]
) -> None:
    shared = shared_cost(REALISTIC, len(sessions), max_rows)
    tokens = placeholders = 0
    for planned, (likely, room) in enumerate(sessions):
        cost = shared.joined(planned, tokens, placeholders) if planned else shared.alike
        plan = plan_pass(likely[: room - 1], OUTLOOK, cost, 0.0, room)
        tokens, placeholders = tokens + 1 + plan.drafts, placeholders + plan.placeholders
    assert tokens + placeholders <= max(max_rows, len(sessions))
