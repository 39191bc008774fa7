"""Log-probabilities: the model's own, one per token, whatever was drafted on the way."""

import pytest
import torch

from prove_core.types import DecodingParams, Limits, Mode, Role, SamplingParams, Step
from tests.core.engine.harness import cycle
from tests.core.engine.test_sampling import PROMPT, engines, logits_of, params
from tests.core.tiny import VOCABULARY, tiny_model

__all__ = ["engines"]  # a fixture

MODES = [Mode.AR, Mode.LOSSLESS, Mode.FUSED, Mode.SPECULATIVE, Mode.AUTO]
COUNT = 4


def steps(engines: dict[Role, object], mode: Mode, how: SamplingParams, limits: Limits) -> list[Step]:
    return cycle(engines, PROMPT, params(mode), limits, mode.value, how).steps  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_they_are_the_models_own(engines: dict[Role, object], mode: Mode, temperature: float) -> None:
    how = SamplingParams(len(PROMPT), temperature=temperature, seed=3, logprobs=COUNT)
    found = steps(engines, mode, how, Limits(24))
    tokens = [token for step in found for token in step.tokens]
    scored = [each for step in found for each in step.logprobs]
    assert len(scored) == len(tokens) == 24
    rows = torch.log_softmax(torch.tensor(logits_of(tiny_model(), [*PROMPT, *tokens])), -1)[len(PROMPT) - 1 : -1]
    for token, row, each in zip(tokens, rows, scored, strict=True):
        assert each.logprob == pytest.approx(row[token].item(), abs=1e-3)
        best = row.topk(COUNT)
        assert [token for token, _ in each.top] == best.indices.tolist()
        assert [value for _, value in each.top] == pytest.approx(best.values.tolist(), abs=1e-3)


def test_a_bias_counts_and_what_cannot_be_chosen_is_not_listed(engines: dict[Role, object]) -> None:
    how = SamplingParams(len(PROMPT), logit_bias=((7, 30.0),), logprobs=VOCABULARY)
    (step, *_) = steps(engines, Mode.AR, how, Limits(3))
    assert step.tokens == (7,)
    assert step.logprobs[0].logprob == pytest.approx(0.0, abs=1e-3)
    assert len(step.logprobs[0].top) == VOCABULARY - 2, "two ids are banned"


@pytest.mark.parametrize("mode", MODES)
def test_a_cut_step_has_as_many_as_tokens_and_nobody_asks_for_none(engines: dict[Role, object], mode: Mode) -> None:
    how = SamplingParams(len(PROMPT), logprobs=0)
    every = [token for step in steps(engines, mode, how, Limits(24)) for token in step.tokens]
    limits = Limits(23, frozenset({every[10]}))
    cut = steps(engines, mode, how, limits)
    assert all(len(step.logprobs) == len(step.tokens) for step in cut)
    assert all(each.top == () for step in cut for each in step.logprobs)
    assert not any(step.logprobs for step in steps(engines, mode, SamplingParams(len(PROMPT)), limits))


def test_modes_that_commit_unread_tokens_have_none() -> None:
    from prove_core.decoding.sampling import check_logprobs
    from prove_core.errors import RequestError

    for mode in (Mode.PROVE, Mode.MARS):
        with pytest.raises(RequestError, match="logprobs needs"):
            check_logprobs(DecodingParams(mode), SamplingParams(1, logprobs=0))
        check_logprobs(DecodingParams(mode), SamplingParams(1))
