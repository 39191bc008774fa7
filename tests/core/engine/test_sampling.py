"""Sampling on tiny random models: exact in distribution, and with a seed the same tokens in every exact mode."""

import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from transformers import PreTrainedModel

from prove_core.engine.engine import Engine
from prove_core.engine.many import complete_many
from prove_core.model.window import PassOutput, Runner, Window
from prove_core.types import DecodingParams, GenerateRequest, Limits, Mode, Role, SamplingParams, Step
from tests.core.engine.harness import cycle, engine_config, running
from tests.core.engine.test_tiny_exactness import AdversarialRunner
from tests.core.sampling import chi_square, fits, penalized, warped
from tests.core.tiny import PAGE_SIZE, VOCABULARY, tiny_model, tiny_runner

PLACEHOLDER = VOCABULARY - 1
BANNED = (PLACEHOLDER, 5)
PAGES = 512
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]
EXACT = [Mode.AR, Mode.LOSSLESS, Mode.FUSED, Mode.SPECULATIVE]
CONFIG = engine_config(tokens=PAGES * PAGE_SIZE, page_size=PAGE_SIZE)


def params(mode: Mode) -> DecodingParams:
    return DecodingParams(mode, block_size=4, draft_length=3, theta=0.0, tau=0.0, fused_rows=16)


def near(model: PreTrainedModel) -> PreTrainedModel:
    """A model that mostly agrees with `model`: it drafts well and not too well."""
    noise = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.add_(torch.randn(weight.shape, generator=noise), alpha=0.06 * float(weight.std()))
    return model


def runner(model: PreTrainedModel, deterministic: bool = False) -> Runner:
    return tiny_runner(model, pages=PAGES, banned=BANNED, placeholder_id=PLACEHOLDER, deterministic=deterministic)


@contextmanager
def pair(proposer: Runner, verifier: Runner) -> Iterator[dict[Role, Engine]]:
    with running(proposer, CONFIG) as first, running(verifier, CONFIG) as second:
        yield {Role.PROPOSER: first, Role.VERIFIER: second}


@pytest.fixture
def engines() -> Iterator[dict[Role, Engine]]:
    with pair(runner(tiny_model()), runner(near(tiny_model()))) as both:
        yield both


def decode(
    engines: dict[Role, Engine], mode: Mode, how: SamplingParams, tokens: int = 24, prompt: Sequence[int] = PROMPT
) -> list[int]:
    return cycle(engines, list(prompt), params(mode), Limits(tokens), mode.value, how).tokens


def logits_of(model: PreTrainedModel, tokens: Sequence[int]) -> list[list[float]]:
    """transformers' own logits at every row, banned ids at -inf."""
    with torch.no_grad():
        rows = model(torch.tensor([tokens])).logits[0]
    rows[:, list(BANNED)] = -torch.inf
    found: list[list[float]] = rows.tolist()
    return found


HOW = SamplingParams(len(PROMPT), temperature=1.3, top_k=6, top_p=0.95)


@pytest.mark.parametrize("mode", EXACT)
def test_two_tokens_have_the_joint_distribution_of_exact_enumeration(mode: Mode) -> None:
    """The first two of four, so that block modes do propose and verify the second."""
    model, count = tiny_model(), 800 if mode is Mode.SPECULATIVE else 2000
    how = replace(HOW, frequency_penalty=0.4)
    expected = []
    for first, share in enumerate(warped(penalized(logits_of(model, PROMPT)[-1], PROMPT, how), how)):
        rows = logits_of(model, [*PROMPT, first])[-1] if share else []
        following = warped(penalized(rows, [*PROMPT, first], how), how) if share else [0.0] * VOCABULARY
        expected += [count * share * other for other in following]
    pairs = []
    accepted = drafted = 0
    with pair(runner(tiny_model()), runner(near(tiny_model()))) as engines:
        if mode is Mode.SPECULATIVE:
            for seed in range(count):
                outcome = cycle(engines, PROMPT, params(mode), Limits(4), "s", replace(how, seed=seed))
                pairs.append(outcome.tokens[0] * VOCABULARY + outcome.tokens[1])
                accepted += sum(step.accepted for step in outcome.steps)
                drafted += sum(step.drafted for step in outcome.steps)
            assert 0.2 < accepted / drafted < 0.9
        else:
            requests = [
                GenerateRequest(f"{seed}", tuple(PROMPT), params(mode), Limits(4), replace(how, seed=seed))
                for seed in range(count)
            ]
            found: list[list[int]] = [[] for _ in requests]
            for index, event in complete_many(engines[Role.PROPOSER], requests, 16):
                found[index] += event.tokens if isinstance(event, Step) else ()
            pairs = [first * VOCABULARY + second for first, second, *_ in found]
    # cells that are hardly ever hit go into one
    rare = [cell for cell, share in enumerate(expected) if 0 < share < 5]
    merged = [share if share >= 5 else 0.0 for share in expected] + [sum(expected[cell] for cell in rare)]
    cells = [len(expected) if cell in set(rare) else cell for cell in pairs]
    assert fits(*chi_square(cells, merged))
    swapped = [cell % VOCABULARY * VOCABULARY + cell // VOCABULARY if cell < len(expected) else cell for cell in cells]
    assert not fits(*chi_square(swapped, merged))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_seed_gives_the_same_tokens_in_every_exact_mode(dtype: torch.dtype) -> None:
    deterministic = dtype is torch.bfloat16
    proposer = AdversarialRunner(runner(tiny_model(dtype=dtype), deterministic), seed=1)  # type: ignore[arg-type]
    with pair(proposer, runner(near(tiny_model(dtype=dtype)), deterministic)) as engines:
        outcomes = set()
        for seed in range(8):
            how = replace(HOW, seed=seed, temperature=0.5 + seed / 6, presence_penalty=seed / 10, top_p=0.9)
            ar = decode(engines, Mode.AR, how, 48)
            proposer.truth = [*PROMPT, *ar]
            for mode in EXACT[1:]:
                assert decode(engines, mode, how, 48) == ar, mode
            outcomes.add(tuple(ar))
        assert len(outcomes) == 8


def test_a_draw_depends_neither_on_the_batch_nor_on_where_a_completion_is_taken_up_again(
    engines: dict[Role, Engine],
) -> None:
    alone = {seed: decode(engines, Mode.LOSSLESS, replace(HOW, seed=seed)) for seed in range(8)}
    greedy = decode(engines, Mode.LOSSLESS, SamplingParams(len(PROMPT)))
    requests = [
        GenerateRequest(f"{i}", tuple(PROMPT), params(mode), Limits(24), replace(HOW, seed=i % 8) if i % 3 else None)
        for i, mode in enumerate([Mode.LOSSLESS, Mode.AR, Mode.FUSED] * 12)
    ]
    together: list[list[int]] = [[] for _ in requests]
    for index, event in complete_many(engines[Role.PROPOSER], requests, len(requests)):
        together[index] += event.tokens if isinstance(event, Step) else ()
    for request, tokens in zip(requests, together, strict=True):
        assert tokens == (greedy if request.sampling is None else alone[request.sampling.seed])
    for cut in (1, 5, 11):
        rest = decode(engines, Mode.FUSED, replace(HOW, seed=3), 24 - cut, [*PROMPT, *alone[3][:cut]])
        assert rest == alone[3][cut:]


PENALTIES = [
    SamplingParams(len(PROMPT), repetition_penalty=1.4),
    SamplingParams(len(PROMPT), presence_penalty=1.5, frequency_penalty=0.5),
    SamplingParams(len(PROMPT), frequency_penalty=-0.8, logit_bias=((7, 2.5), (11, -100.0))),
    SamplingParams(len(PROMPT), logit_bias=((40, 4.0), (41, 4.0))),
]


@pytest.mark.parametrize("how", PENALTIES, ids=["repetition", "presence", "frequency", "bias"])
def test_penalties_equal_a_slow_reference_in_every_mode(engines: dict[Role, Engine], how: SamplingParams) -> None:
    model, tokens, blocks = tiny_model(), list(PROMPT), list(PROMPT)
    while len(tokens) < len(PROMPT) + 24:
        row = penalized(logits_of(model, tokens)[-1], tokens, how)
        tokens.append(row.index(max(row)))
    while len(blocks) < len(PROMPT) + 24:  # thresholds of 0: a block is committed as it is proposed
        rows = logits_of(model, [*blocks, *[PLACEHOLDER] * 3])[len(blocks) - 1 :]
        for row in rows:
            adjusted = penalized(row, blocks, how)
            blocks.append(adjusted.index(max(adjusted)))
    assert tokens != [*PROMPT, *decode(engines, Mode.AR, SamplingParams(len(PROMPT)))], "a penalty without effect"
    for mode in EXACT:
        assert decode(engines, mode, how) == tokens[len(PROMPT) :], mode
    for mode in (Mode.MARS, Mode.PROVE):
        assert decode(engines, mode, how) == blocks[len(PROMPT) :], mode


class Watched:
    """A runner that notes every id it proposes or reads."""

    def __init__(self, inner: Runner) -> None:
        self._inner = inner
        self.seen: set[int] = set()

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """As the inner one."""
        output = self._inner.run(windows)
        for window, rows in zip(windows, output.outputs, strict=True):
            self.seen.update(window.tokens, rows.argmax, rows.drafts)
        return output


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_a_banned_id_appears_nowhere_in_a_block(mode: Mode, temperature: float) -> None:
    source = random.Random(5)
    bans = source.sample([token for token in range(VOCABULARY) if token not in PROMPT], 150)
    how = SamplingParams(
        len(PROMPT),
        temperature if mode in EXACT else 0.0,
        logit_bias=tuple((token, -100.0) for token in bans),
        repetition_penalty=1.2,
    )
    proposer, verifier = Watched(runner(tiny_model())), Watched(runner(near(tiny_model())))
    with pair(proposer, verifier) as engines:
        assert len(decode(engines, mode, how, 40)) == 40
    assert not (proposer.seen | verifier.seen) & set(bans)


def test_sampling_near_temperature_zero_is_greedy(engines: dict[Role, Engine]) -> None:
    greedy = decode(engines, Mode.AR, SamplingParams(len(PROMPT)))
    for mode in EXACT:
        assert decode(engines, mode, SamplingParams(len(PROMPT), temperature=2e-5, seed=3)) == greedy


def test_min_tokens_hold_for_draws(engines: dict[Role, Engine]) -> None:
    stops = frozenset(range(0, VOCABULARY, 2))
    for mode in EXACT:
        how = SamplingParams(len(PROMPT), temperature=2.0, seed=4)
        outcome = cycle(engines, PROMPT, params(mode), Limits(200, stops, min_tokens=15), "s", how)
        assert 15 <= len(outcome.tokens) < 60
        assert all(token % 2 for token in outcome.tokens)


def test_confidence_is_that_of_the_drawn_token() -> None:
    model = tiny_model()
    how = SamplingParams(len(PROMPT), temperature=1.5, seed=8)
    window = Window(PROMPT, 0, range(8), logits=1, sampling=how)
    output = runner(tiny_model()).run([window]).outputs[0]
    row = logits_of(model, PROMPT)[-1]
    share = math.exp(row[output.argmax[0]]) / sum(map(math.exp, row))
    assert output.confidences[0] == pytest.approx(share, rel=1e-4)
