"""Lossless and fused equal AR on a real (tiny, random) model, whatever is proposed, right or wrong at random."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from prove_core.model.runner import ModelRunner
from prove_core.model.window import ChosenGroup, PassOutput, Window
from prove_core.types import Alternative, Alternatives, DecodingParams, Limits, Mode
from tests.core.engine.harness import engine_config, generate, running
from tests.core.tiny import PAGE_SIZE, VOCABULARY, tiny_model, tiny_runner

TOKENS = 64


class AdversarialRunner:
    """Replaces what placeholders propose by the true continuation, up to a random place, and by noise after it.

    Noise is of ids below `vocabulary`.
    """

    def __init__(self, inner: ModelRunner, seed: int, vocabulary: int = VOCABULARY - 1) -> None:
        self._inner = inner
        self._vocabulary = vocabulary
        self._random = random.Random(seed)
        self.truth: list[int] = []  # of the one sequence under way

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """As the inner runner, but for the proposals."""
        output = self._inner.run(windows)
        rows = []
        for window, found in zip(windows, output.outputs, strict=True):
            groups = window.chosen(found.argmax, found.behind)
            guesses = tuple(guess for group in groups for guess in self._guesses(group))
            plain = bool(groups) and window.sampling is None
            others = self._alternatives(groups[0].index + groups[0].known, guesses) if plain else ()
            rows.append(replace(found, drafts=guesses, draft_confidences=(0.9,) * len(guesses), alternatives=others))
        return replace(output, outputs=rows)

    def _alternatives(self, index: int, guesses: tuple[int, ...]) -> Alternatives:
        """To some guesses, the first of them for `index`: the truth and two tokens behind it, or noise."""
        found = []
        for place, guess in enumerate(guesses):
            true = self.truth[index + place : index + place + 1 + self._random.randrange(3)]
            path = true if self._random.random() < 0.5 else [self._random.randrange(self._vocabulary)]
            if path and path[0] != guess:
                found.append(Alternative(place, tuple(path), (0.9,) * len(path)))
        return tuple(found)

    def _guesses(self, group: ChosenGroup) -> list[int]:
        count = group.count - group.known
        guesses = (self.truth[group.index + group.known :] + [0] * count)[:count]
        for index in range(self._random.randint(0, count), count):
            guesses[index] = self._random.randrange(self._vocabulary)
        return guesses


@pytest.mark.parametrize(("dtype", "deterministic", "count"), [(torch.float32, False, 20), (torch.bfloat16, True, 12)])
def test_every_block_size_and_every_acceptance_length(dtype: torch.dtype, deterministic: bool, count: int) -> None:
    noise = random.Random(7)
    prompts = [[noise.randrange(VOCABULARY - 1) for _ in range(noise.randint(1, 40))] for _ in range(count)]
    inner = tiny_runner(tiny_model(dtype=dtype), pages=64, banned=[VOCABULARY - 1], deterministic=deterministic)
    runner = AdversarialRunner(inner, seed=3)
    accepted: dict[tuple[Mode, int], Counter[int]] = {
        (mode, size): Counter() for mode in (Mode.LOSSLESS, Mode.FUSED) for size in (1, 4, 8, 16)
    }
    with running(runner, engine_config(tokens=64 * PAGE_SIZE, page_size=PAGE_SIZE)) as engine:
        for prompt in prompts:
            ar = generate(engine, prompt, DecodingParams(Mode.AR), Limits(TOKENS)).tokens
            runner.truth = [*prompt, *ar]
            for (mode, size), counts in accepted.items():
                params = DecodingParams(mode, block_size=size, fused_rows=4 * size)
                outcome = generate(engine, prompt, params, Limits(TOKENS))
                assert outcome.tokens == ar
                counts.update(step.accepted for step in outcome.steps if step.drafted)
    for (mode, size), counts in accepted.items():
        reached = min(size, 8) if mode is Mode.FUSED else size  # deep placeholders are rarely worth a row
        assert size == 1 or set(counts) >= set(range(reached))
