"""What a pass of mode `auto` verifies and proposes: against the best of all plans, found slowly."""

from itertools import accumulate, product
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.cost import FREE, PassCost, fitted
from prove_core.decoding.plan import AR_PASS, SharedCost, plan_pass, shared_cost
from tests.core.decoding.test_fusion import falling

chances = st.lists(st.floats(0.0, 1.0), max_size=3)
# Half a pass is reading the weights, the other half grows by row: a processor that turns compute-bound early.
REALISTIC = PassCost(((1, 0.020), (8, 0.026), (16, 0.034), (32, 0.052), (64, 0.090)), ((1, 0.002), (48, 0.008)), 1e-4)
OUTLOOK = (0.85, 0.7, 0.55, 0.45, 0.35, 0.3, 0.25)


def costs(rows: list[float], extra: list[float]) -> PassCost:
    sizes = (1, 2, 4, 8)
    return fitted([*zip(sizes, sorted(rows), strict=True)], [*zip(sizes, sorted(extra), strict=True)], 0.0)


measured = st.lists(st.floats(0.01, 1.0), min_size=4, max_size=4)
cheap = st.lists(st.floats(0.0, 0.05), min_size=4, max_size=4)


def worth(
    drafts: int,
    counts: tuple[int, ...],
    likely: list[float],
    outlook: tuple[float, ...],
    cost: SharedCost,
    price: float,
) -> float:
    """The worth of a plan, by its definition."""
    reach = [1.0, *accumulate(likely[:drafts], mul)]
    ends = [*reach[1:], 0.0]
    promise = sum(
        (here - further) * sum(chance - price * cost.row for chance in outlook[:count])
        for here, further, count in zip(reach, ends, counts, strict=True)
    )
    return sum(reach) + promise - price * cost.seconds(drafts, sum(counts))


@given(chances, falling, st.builds(costs, measured, cheap), st.floats(0.1, 60.0), st.integers(1, 3))
def test_no_other_plan_is_worth_more(
    likely: list[float], outlook: tuple[float, ...], cost: PassCost, price: float, completions: int
) -> None:
    shared = shared_cost(cost, completions, 30)
    plan = plan_pass(likely, outlook, shared, price, 100, propose=True)
    found = [0] * (plan.drafts + 1)
    for branch in plan.branches:
        found[branch.accepted] = branch.placeholders
    assert 1 + plan.drafts + sum(found) < len(shared.rows)
    best = max(
        worth(drafts, counts, likely, outlook, shared, price)
        for drafts in range(len(likely) + 1)
        for counts in product(range(len(outlook) + 1), repeat=drafts + 1)
        if 1 + drafts + sum(counts) < len(shared.rows)
    )
    neglected = 0.02 * 4 * 3  # rows that are hardly worth anything are not looked at
    assert worth(plan.drafts, tuple(found), likely, outlook, shared, price) >= best - neglected - 1e-9


def test_free_rows_are_all_used_and_dear_ones_are_not() -> None:
    free = shared_cost(FREE, 1, 192)
    plan = plan_pass([0.9, 0.8, 0.7], OUTLOOK, free, 3 / free.seconds(0, 0), 100, propose=True)
    assert plan.drafts == 3
    assert plan.placeholders > 15
    dear = shared_cost(PassCost(((1, 1.0), (64, 64.0)), ((1, 0.1),), 0.0), 1, 192)
    assert plan_pass([0.9, 0.8, 0.7], OUTLOOK, dear, 1 / dear.seconds(0, 0), 100, propose=True) == AR_PASS


def test_rows_become_fewer_as_more_completions_share_a_pass() -> None:
    rows = []
    for completions in (1, 2, 4, 8, 16, 32, 64):
        cost = shared_cost(REALISTIC, completions, 192)
        plan = plan_pass([0.9, 0.8, 0.6, 0.4], OUTLOOK, cost, 1 / cost.seconds(0, 0), 100, propose=True)
        rows.append(plan.drafts + plan.placeholders)
    assert rows == sorted(rows, reverse=True)
    assert rows[0] > 8
    assert rows[-1] <= 1, "a draft in hand that is likely"


@given(chances, st.integers(1, 8), st.booleans())
def test_nothing_is_proposed_beyond_the_end_or_unasked(likely: list[float], room: int, propose: bool) -> None:
    cost = shared_cost(FREE, 1, 192)
    drafts = likely[: room - 1]
    plan = plan_pass(drafts, OUTLOOK, cost, 0.0, room, propose=propose)
    assert propose or not plan.branches
    for branch in plan.branches:
        assert branch.accepted + 1 + branch.placeholders + 1 <= room, "drafts that could not be committed"


@pytest.mark.parametrize("completions", [1, 100, 500])
def test_there_is_always_room_for_the_next_token(completions: int) -> None:
    cost = shared_cost(REALISTIC, completions, 192)
    plan = plan_pass([0.9] * 7, OUTLOOK, cost, 0.0, 100, propose=True)
    assert 1 + plan.drafts + plan.placeholders <= max(1, 192 // completions)
