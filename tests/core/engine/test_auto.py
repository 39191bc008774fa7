"""Mode `auto` in a real engine: its output is AR's whatever passes are thought to cost; passes are measured."""

import random

import pytest

from prove_core.decoding.controller import Controller
from prove_core.decoding.cost import FREE, PassCost, fitted
from prove_core.engine.measure import measure_passes
from prove_core.model.window import Window
from prove_core.types import Calibration, DecodingParams, GenerateRequest, Limits, Mode, SamplingParams
from tests.core.engine.harness import Stream, engine_config, generate, running
from tests.core.engine.test_tiny_exactness import AdversarialRunner
from tests.core.tiny import PAGE_SIZE, VOCABULARY, tiny_model, tiny_runner
from tests.core.toy import ToyRunner, continuation

CONFIG = engine_config(tokens=64 * PAGE_SIZE, page_size=PAGE_SIZE)
STEEP = PassCost(((1, 1e-3), (8, 4e-3), (64, 4e-2)), ((1, 1e-3), (48, 4e-3)), 1e-4)
NEAR_LINEAR = PassCost(((1, 1e-3), (64, 6e-2)), ((1, 1e-2),), 0.0)
COSTS = {"free": FREE, "steep": STEEP, "linear": NEAR_LINEAR}


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("calibration", [Calibration(0.0, 1.0), Calibration(4.0, -2.0)])
def test_the_output_is_that_of_ar(name: str, calibration: Calibration) -> None:
    noise = random.Random(11)
    inner = tiny_runner(tiny_model(), pages=64, banned=[VOCABULARY - 1])
    runner = AdversarialRunner(inner, seed=3)
    controller = Controller(COSTS[name], calibration, max_rows=192)
    with running(runner, CONFIG, controller) as engine:
        for size in (1, 2, 8, 16):
            prompt = [noise.randrange(VOCABULARY - 1) for _ in range(noise.randint(1, 40))]
            ar = generate(engine, prompt, DecodingParams(Mode.AR), Limits(96)).tokens
            runner.truth = [*prompt, *ar]
            auto = generate(engine, prompt, DecodingParams(Mode.AUTO, block_size=size), Limits(96))
            assert auto.tokens == ar
        stats = engine.stats()
    assert stats.auto_ar + stats.auto_proposing == pytest.approx(96 * 4, abs=96 * 4 - 40)
    assert stats.auto_mean_rows >= 1


def test_free_rows_are_used_and_dear_ones_are_not() -> None:
    means = []
    for cost in (FREE, NEAR_LINEAR):
        with running(ToyRunner(4, luck=0.9), controller=Controller(cost, max_rows=192)) as engine:
            outcome = generate(engine, [1, 2, 3], DecodingParams(Mode.AUTO), Limits(200))
            assert outcome.tokens == continuation([1, 2, 3], 200)
            means.append(engine.stats().auto_mean_rows)
    assert means[0] > 4
    assert means[1] < 2


def test_many_together_with_drafts_draws_and_a_small_pool() -> None:
    config = engine_config(tokens=480)
    with running(ToyRunner(4, luck=0.8), config, Controller(FREE, max_rows=192)) as engine:
        streams = []
        for index in range(12):
            sampling = SamplingParams(3, temperature=1.0, seed=index) if index % 3 == 0 else None
            request = GenerateRequest(
                f"s{index}", (index, 2, 3), DecodingParams(Mode.AUTO), Limits(40 + index), sampling
            )
            streams.append(Stream(engine, request))
        for index, stream in enumerate(streams):
            seed = index if index % 3 == 0 else None
            assert stream.result().tokens == continuation([index, 2, 3], 40 + index, seed)


def test_without_a_placeholder_it_is_ar() -> None:
    with running(ToyRunner(4), controller=Controller(max_rows=192, proposes=False)) as engine:
        assert generate(engine, [1, 2], DecodingParams(Mode.AUTO), Limits(20)).tokens == continuation([1, 2], 20)
        assert engine.stats().rows == 21
        assert engine.stats().passes == 20


class _Timed:
    """A runner whose passes take what `truth` says, by its own clock, now and then more."""

    def __init__(self, truth: PassCost) -> None:
        self._truth = truth
        self._inner = ToyRunner(16)
        self._noise = random.Random(1)
        self.now = 0.0

    def run(self, windows: list[Window]) -> None:
        for window in windows:
            assert window.length <= len(window.pages) * 16
            assert max(window.pages) < 64
        placeholders = sum(window.placeholders for window in windows)
        tokens = sum(window.rows for window in windows) - placeholders
        self.now += self._truth.seconds(tokens, placeholders, len(windows)) * self._noise.choice([1.0, 1.0, 1.5])


def test_passes_are_measured_through_noise() -> None:
    truth = fitted(
        [(1, 0.020), (2, 0.021), (4, 0.022), (8, 0.026), (16, 0.034), (32, 0.052), (64, 0.090)],
        [(1, 0.002), (48, 0.008)],
        1e-3,
    )
    runner = _Timed(truth)
    found = measure_passes(runner, 64, 16, clock=lambda: runner.now)  # type: ignore[arg-type]
    assert runner.now < 3.0
    for shape in [(1, 0, 1), (8, 0, 1), (40, 0, 1), (16, 0, 16), (4, 12, 1), (16, 48, 1)]:
        assert found.seconds(*shape) == pytest.approx(truth.seconds(*shape), rel=0.25)


@pytest.mark.parametrize("pages", [1, 3, 64])
def test_a_real_runner_is_measured_in_any_pool_and_serves_after_it(pages: int) -> None:
    runner = tiny_runner(tiny_model(), pages=pages, banned=[VOCABULARY - 1])
    cost = measure_passes(runner, pages, PAGE_SIZE)
    assert 0 < cost.seconds(1, 0) <= cost.seconds(8, 8)
    with running(runner, engine_config(tokens=pages * PAGE_SIZE), Controller(cost, max_rows=192)) as engine:
        ar = generate(engine, [1, 2], DecodingParams(Mode.AR), Limits(min(2, 4 * pages - 2))).tokens
        assert generate(engine, [1, 2], DecodingParams(Mode.AUTO), Limits(min(2, 4 * pages - 2))).tokens == ar


def test_what_the_context_repeats_is_verified_where_proposing_does_not_pay() -> None:
    """Text that goes round in circles takes fewer passes than tokens, and is the same."""
    dear = PassCost(((1, 1e-3), (64, 2e-3)), ((1, 1.0), (64, 2.0)), 0.0)
    runner = tiny_runner(tiny_model(seed=2), pages=128, banned=[VOCABULARY - 1])
    with running(runner, CONFIG, Controller(dear, max_rows=192)) as engine:
        ar = generate(engine, [7] * 9, DecodingParams(Mode.AR), Limits(120))
        auto = generate(engine, [7] * 9, DecodingParams(Mode.AUTO), Limits(120))
    assert len(set(ar.tokens[60:])) == 1, "a circle"
    assert auto.tokens == ar.tokens
    assert sum(step.accepted for step in auto.steps) > 40
    assert len(auto.steps) < 80
