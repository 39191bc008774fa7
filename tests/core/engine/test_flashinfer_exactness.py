"""An engine over the FlashInfer backend, its kernels by the reference: exact modes, bit for bit and replayed."""

import random

import pytest

from prove_core.types import DecodingParams, Limits, Mode
from tests.core.engine.harness import engine_config, generate, running
from tests.core.engine.test_tiny_exactness import AdversarialRunner
from tests.core.model.test_graphs import PAGE, PAGES, SHAPES, runner_of

TOKENS = 20


@pytest.mark.parametrize("prompt_length", [3, 21])
def test_deterministic_modes_equal_ar(prompt_length: int) -> None:
    prompt = [random.Random(prompt_length).randrange(90) for _ in range(prompt_length)]
    runner = AdversarialRunner(runner_of([], deterministic=True), seed=1, vocabulary=90)
    with running(runner, engine_config(tokens=PAGES * PAGE, page_size=PAGE)) as engine:
        ar = generate(engine, prompt, DecodingParams(Mode.AR), Limits(TOKENS)).tokens
        runner.truth = [*prompt, *ar]
        for mode in (Mode.LOSSLESS, Mode.FUSED):
            outcome = generate(engine, prompt, DecodingParams(mode, block_size=4, fused_rows=12), Limits(TOKENS))
            assert outcome.tokens == ar
            assert any(step.accepted for step in outcome.steps), "drafts must have stood for this to mean anything"


def test_an_engine_replays_its_decode_passes() -> None:
    runner = runner_of([shape for shape in SHAPES if shape.rows <= 16])
    replayed: list[str] = []
    for shape, recorded in runner._recorded.items():
        recorded._replay = _noting(recorded._replay, replayed, shape.kind.name)
    with running(runner, engine_config(tokens=PAGES * PAGE, page_size=PAGE)) as engine:
        for mode in (Mode.AR, Mode.FUSED):
            outcome = generate(engine, [5, 6, 7], DecodingParams(mode, block_size=4, fused_rows=8), Limits(TOKENS))
            assert len(outcome.tokens) == TOKENS
    assert {"PLAIN", "PROPOSING", "TREE"} <= set(replayed)


def _noting(replay: object, notes: list[str], name: str) -> object:
    def noted() -> None:
        notes.append(name)
        replay()  # type: ignore[operator]

    return noted
