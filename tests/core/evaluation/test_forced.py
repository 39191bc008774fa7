"""Teacher forcing through an engine equals the model's own forward pass, however long the text."""

import random

import pytest
import torch

from prove_core.errors import PoolExhausted
from prove_core.evaluation.forced import PIECE, read_forced
from tests.core.engine.harness import engine_config, running
from tests.core.tiny import VOCABULARY, tiny_model, tiny_runner
from tests.core.toy import ToyRunner, continuation

PROMPT = (3, 1, 4)


@pytest.mark.parametrize("length", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 7])
def test_every_place_is_read_once(length: int) -> None:
    text = tuple((7 * token) % 50 for token in continuation(PROMPT, length))
    with running(ToyRunner(4)) as engine:
        reading = read_forced(engine, "s", PROMPT, text)
    assert reading.argmax == tuple(ToyRunner.next_token((*PROMPT, *text[:i])) for i in range(length + 1))
    assert reading.probabilities == tuple(
        0.9 if token == best else 0.001 for token, best in zip(text, reading.argmax, strict=False)
    )


def test_probabilities_are_the_models_own() -> None:
    rng = random.Random(0)
    text = tuple(rng.randrange(VOCABULARY - 1) for _ in range(PIECE + 20))
    model = tiny_model()
    with torch.no_grad():
        rows = torch.softmax(model(torch.tensor([[*PROMPT, *text]])).logits[0, len(PROMPT) - 1 :].float(), -1)
    with running(tiny_runner(model)) as engine:
        reading = read_forced(engine, "s", PROMPT, text)
    expected = [row[token].item() for row, token in zip(rows, text, strict=False)]
    assert reading.probabilities == pytest.approx(expected, rel=1e-4)
    assert reading.argmax == tuple(rows.argmax(-1).tolist())


def test_a_text_beyond_the_pool_is_an_error_and_leaves_nothing_behind() -> None:
    with running(ToyRunner(4), engine_config(tokens=80)) as engine, pytest.raises(PoolExhausted):
        read_forced(engine, "s", PROMPT, (1,) * 100)
