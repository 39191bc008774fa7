"""Lossless equals AR on a real (tiny, random) model, whatever is proposed: guesses are right or wrong at random."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from prove_core.model.runner import ModelRunner
from prove_core.model.window import PassOutput, Window
from prove_core.types import DecodingParams, Limits, Mode
from tests.core.engine.harness import engine_config, generate, running
from tests.core.tiny import PAGE_SIZE, VOCABULARY, tiny_model, tiny_runner

TOKENS = 128


class AdversarialRunner:
    """Replaces what placeholders propose by the true continuation, up to a random place, and by noise after it."""

    def __init__(self, inner: ModelRunner, seed: int) -> None:
        self._inner = inner
        self._random = random.Random(seed)
        self.truth: list[int] = []  # of the one sequence under way

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """As the inner runner, but for the proposals."""
        output = self._inner.run(windows)
        rows = [
            replace(rows, argmax=(rows.argmax[0], *self._guesses(window))) if window.placeholders else rows
            for window, rows in zip(windows, output.outputs, strict=True)
        ]
        return replace(output, outputs=rows)

    def _guesses(self, window: Window) -> list[int]:
        first = window.start + len(window.tokens) + 1
        guesses = (self.truth[first:] + [0] * window.placeholders)[: window.placeholders]
        for index in range(self._random.randint(0, window.placeholders), window.placeholders):
            guesses[index] = self._random.randrange(VOCABULARY - 1)
        return guesses


@pytest.mark.parametrize(("dtype", "deterministic", "count"), [(torch.float32, False, 50), (torch.bfloat16, True, 20)])
def test_every_block_size_and_every_acceptance_length(dtype: torch.dtype, deterministic: bool, count: int) -> None:
    noise = random.Random(7)
    prompts = [[noise.randrange(VOCABULARY - 1) for _ in range(noise.randint(1, 40))] for _ in range(count)]
    inner = tiny_runner(tiny_model(dtype=dtype), pages=64, banned=[VOCABULARY - 1], deterministic=deterministic)
    runner = AdversarialRunner(inner, seed=3)
    accepted: dict[int, Counter[int]] = {size: Counter() for size in (1, 4, 8, 16)}
    with running(runner, engine_config(tokens=64 * PAGE_SIZE, page_size=PAGE_SIZE)) as engine:
        for prompt in prompts:
            ar = generate(engine, prompt, DecodingParams(Mode.AR), Limits(TOKENS)).tokens
            runner.truth = [*prompt, *ar]
            for size, counts in accepted.items():
                params = DecodingParams(Mode.LOSSLESS, block_size=size)
                outcome = generate(engine, prompt, params, Limits(TOKENS))
                assert outcome.tokens == ar
                counts.update(step.accepted for step in outcome.steps if step.drafted == size - 1)
    for size, counts in accepted.items():
        assert size == 1 or set(counts) == set(range(size))
