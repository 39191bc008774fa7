"""The controller over time, on simulated machines: it proposes where that is faster, and does not waver."""

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest

from prove_core.decoding.controller import WAIT, Controller
from prove_core.decoding.cost import PassCost
from prove_core.decoding.cycle import AR_ONLY
from prove_core.decoding.drafts import Drafts
from prove_core.decoding.lookup import NO_REPEAT, Repeat
from prove_core.decoding.session_planner import planner_for
from prove_core.types import IDENTITY, DecodingParams

CHEAP = PassCost(((1, 0.020), (8, 0.024), (16, 0.030), (64, 0.070)), ((1, 0.002), (48, 0.008)), 1e-4)
DEAR = PassCost(((1, 0.020), (8, 0.100), (64, 0.800)), ((1, 0.020), (48, 0.100)), 1e-4)


@dataclass
class Run:
    """Tokens of one completion, seconds of its passes, and whether each had drafts or placeholders."""

    tokens: int
    seconds: float
    proposed: list[bool]

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds

    @property
    def turns(self) -> int:
        """Times that most of 32 passes proposed after most of 32 did not, or the reverse."""
        chunks = [2 * sum(self.proposed[i : i + 32]) > 32 for i in range(0, len(self.proposed), 32)]
        return sum(a != b for a, b in pairwise(chunks))


def in_hand(confidences: Sequence[float]) -> Drafts:
    return Drafts((0,) * len(confidences), tuple(confidences), new=len(confidences))


def simulate(
    controller: Controller, truth: PassCost, skill: float, passes: int, completions: int = 1, noise: float = 0.2
) -> Run:
    """Completions alike, one of them looked at. Each draft matches with the probability that it says, about `skill`."""
    chance = random.Random(4)
    planner = planner_for(controller, DecodingParams(), lambda: completions)
    run, drafts = Run(0, 0.0, []), list[float]()
    for _ in range(passes):
        plan = planner.plan(in_hand(drafts), NO_REPEAT, 10_000)
        accepted = 0
        while accepted < plan.drafts and chance.random() < drafts[accepted]:
            accepted += 1
        planner.learn(plan.drafts, accepted)
        count = next((b.placeholders for b in plan.branches if b.accepted == accepted), 0)
        drafts = [chance.betavariate(4 * skill, 4 * (1 - skill)) for _ in range(count)]
        shape = (completions * (1 + plan.drafts), completions * plan.placeholders, completions)
        seconds = truth.seconds(*shape) * chance.lognormvariate(0.0, noise)
        controller.turned()
        controller.passed(*shape, seconds)
        run.tokens += accepted + 1
        run.seconds += seconds
        run.proposed.append(bool(plan.drafts or plan.branches))
    return run


def controlled(cost: PassCost) -> Controller:
    return Controller(cost, IDENTITY, max_rows=192)


@pytest.mark.parametrize("completions", [1, 4, 16, 64])
@pytest.mark.parametrize("skill", [0.05, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("truth", [CHEAP, DEAR])
def test_it_does_not_lose_to_ar_and_does_not_waver(truth: PassCost, skill: float, completions: int) -> None:
    run = simulate(controlled(truth), truth, skill, 3000, completions)
    ar = 1.0 / (truth.seconds(completions, 0, completions) * 1.0202)  # the mean of the noise
    assert run.rate > 0.95 * ar
    assert run.turns <= 8  # twice for each trial; at break-even a plan may have no rows now and then as well


def test_good_drafts_on_cheap_rows_are_worth_it() -> None:
    run = simulate(controlled(CHEAP), CHEAP, 0.8, 1500)
    assert run.rate > 1.8 / CHEAP.seconds(1, 0)
    assert sum(run.proposed) > 1400


@pytest.mark.parametrize(("believed", "truth"), [(CHEAP, DEAR), (DEAR, CHEAP)])
def test_a_wrong_measurement_is_found_out(believed: PassCost, truth: PassCost) -> None:
    controller = controlled(believed)
    simulate(controller, truth, 0.75, 3 * WAIT)
    later = simulate(controller, truth, 0.75, 1000)
    right = simulate(controlled(truth), truth, 0.75, 1000)
    assert later.rate > 0.7 * right.rate  # AR has 0.55 of it where proposing pays


def test_rows_and_choices_are_counted() -> None:
    controller = controlled(CHEAP)
    run = simulate(controller, CHEAP, 0.8, 200)
    assert (controller.choices.ar, controller.choices.proposing) == (run.proposed.count(False), sum(run.proposed))
    assert controller.choices.rows > 3 * 200


def test_a_turn_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="prove_core.decoding.controller"):
        simulate(controlled(DEAR), DEAR, 0.1, 1000)
    assert [record.getMessage() for record in caplog.records] == [
        "mode auto: most passes now are plain AR: it is faster"
    ]


def test_a_checkpoint_without_a_placeholder_decodes_as_ar() -> None:
    assert planner_for(Controller(max_rows=192, proposes=False), DecodingParams(), lambda: 1) is AR_ONLY


ROWS_ONLY = PassCost(((1, 0.020), (8, 0.024), (16, 0.030), (64, 0.070)), ((1, 0.040), (48, 0.100)), 1e-4)


@pytest.mark.parametrize("completions", [1, 4])
@pytest.mark.parametrize("right", [0.0, 0.5, 0.9])
def test_repeats_are_verified_where_they_pay(right: float, completions: int) -> None:
    """On a machine where proposing never pays: what the context repeats is all there is, and may be wrong for long."""
    chance, controller = random.Random(5), controlled(ROWS_ONLY)
    planner = planner_for(controller, DecodingParams(), lambda: completions)
    tokens, seconds, ar = 0, 0.0, ROWS_ONLY.seconds(completions, 0, completions)
    for _ in range(3000):
        repeat = Repeat((1, 2, 3, 4), 3) if chance.random() < 0.7 else NO_REPEAT
        plan = planner.plan(in_hand(()), repeat, 10_000)
        assert plan.drafts <= len(repeat.tokens)
        accepted = 0
        while accepted < plan.drafts and chance.random() < right:
            accepted += 1
        planner.learn(plan.drafts, accepted)
        shape = (completions * (1 + plan.drafts), completions * plan.placeholders, completions)
        controller.turned()
        controller.passed(*shape, ROWS_ONLY.seconds(*shape))
        tokens += accepted + 1
        seconds += ROWS_ONLY.seconds(*shape)
    assert tokens * ar / seconds > {0.0: 0.95, 0.5: 1.15, 0.9: 2.0}[right]


def test_the_better_of_proposed_and_repeated_drafts_are_verified() -> None:
    controller = controlled(CHEAP)
    simulate(controller, CHEAP, 0.8, 300)
    for _ in range(50):
        controller.repeats.learn(4, drafted=2, accepted=2)
    planner = planner_for(controller, DecodingParams(), lambda: 1)
    repeat = Repeat((1, 2, 3), 4)
    assert not planner.plan(in_hand((0.97, 0.97, 0.97, 0.97)), repeat, 10_000).repeats
    plan = planner.plan(in_hand((0.05, 0.05)), repeat, 10_000)
    assert plan.repeats
    assert plan.drafts
    planner.learn(plan.drafts, 0)
    assert not planner.plan(in_hand((0.05, 0.05)), Repeat((), 0), 10_000).repeats
