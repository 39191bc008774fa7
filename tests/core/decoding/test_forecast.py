"""What proposing comes to: against decoding by that plan, and where the answer is known."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.blocks import Blocks
from prove_core.decoding.cost import FREE, PassCost
from prove_core.decoding.experience import Experience
from prove_core.decoding.forecast import Block, Forecast, forecast
from prove_core.decoding.plan import SharedCost, shared_cost
from tests.core.decoding.test_plan import plan_pass

COST = PassCost(((1, 0.020), (8, 0.024), (16, 0.030), (64, 0.070)), ((1, 0.002), (48, 0.008)), 1e-4)


def settled(blocks: list[Block], cost: SharedCost) -> Forecast:
    found = forecast(blocks, cost)
    for _ in range(40):
        found = forecast(blocks, cost, found)
    return found


def decoded(blocks: list[Block], cost: SharedCost, found: Forecast, passes: int) -> float:
    """Tokens per AR pass's time of completions that all do as the forecast says, one of them looked at."""
    chance = random.Random(3)
    price = max(1.0, found.gain) / cost.ar
    tokens, seconds, drafts = 0, 0.0, tuple[float, ...]()
    for _ in range(passes):
        plan = plan_pass(drafts, found.promise, cost.alike, price, 10_000)
        accepted = 0
        while accepted < plan.drafts and chance.random() < drafts[accepted]:
            accepted += 1
        count = next((branch.placeholders for branch in plan.branches if branch.accepted == accepted), 0)
        drafts = chance.choice(blocks).chances[:count]
        tokens += 1 + accepted
        seconds += cost.ar + cost.alike.seconds(plan.drafts, plan.placeholders)
    return tokens * cost.ar / seconds


@pytest.mark.parametrize("completions", [1, 2, 4])
def test_the_gain_foreseen_is_the_gain_that_comes(completions: int) -> None:
    chance = random.Random(1)
    blocks = [Block(tuple(chance.betavariate(3.0, 1.0) for _ in range(7))) for _ in range(40)]
    cost = shared_cost(COST, completions, 192)
    found = settled(blocks, cost)
    assert found.gain > 1.2
    assert decoded(blocks, cost, found, 4000) == pytest.approx(found.gain, rel=0.06)


def test_sure_drafts_that_cost_nothing_are_worth_themselves() -> None:
    found = settled([Block((1.0,) * 7)], shared_cost(FREE, 1, 192))
    assert found.gain == pytest.approx(8.0, rel=1e-3)
    assert sum(found.promise) == pytest.approx(7.0, rel=1e-3)


def test_hopeless_drafts_are_worth_nothing() -> None:
    found = settled([Block((0.0,) * 7)], shared_cost(COST, 1, 192))
    assert found.gain < 1.0
    assert max(found.promise) == pytest.approx(0.0, abs=1e-9)


@given(
    st.lists(
        st.lists(st.floats(0.0, 1.0), min_size=5, max_size=5).map(lambda each: Block(tuple(each))),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 80),
)
def test_a_promise_falls_and_is_never_a_threat(blocks: list[Block], completions: int) -> None:
    found = forecast(blocks, shared_cost(COST, completions, 192))
    assert list(found.promise) == sorted(found.promise, reverse=True)
    assert all(-1e-9 <= value <= 1.0 + 1e-9 for value in found.promise)
    assert found.gain >= 0.0


def test_blocks_seen_take_the_place_of_what_was_made_up() -> None:
    blocks = Blocks(3)
    for _ in range(1000):
        blocks.add([0.25, 0.5])
    assert {block.chances[:2] for block in blocks.kept} == {(0.25, 0.5)}
    assert all(len(block.chances) == 3 for block in blocks.kept)


def test_experience_is_of_late() -> None:
    experience = Experience(0.9)
    assert experience.ratio == 1.0
    for _ in range(200):
        experience.add(1.0, 2.0)
    assert experience.ratio == pytest.approx(0.5)
    for _ in range(200):
        experience.fade()
    assert experience.ratio == pytest.approx(1.0)
