"""The null runner: one sequence for all, and proposals always agree with verification."""

import torch

from prove_core.attention.base import LayerSpec
from prove_core.kv.storage import KVStorage
from prove_core.model.null import NullRunner
from prove_core.model.window import Window

SPEC = LayerSpec(0, 1, 1, 1, 1, 1.0)


def null_runner(vocabulary: int = 50, avoid: tuple[int, ...] = (0, 1, 2)) -> NullRunner:
    storage = KVStorage([SPEC.shape], pages=16, page_size=4, dtype=torch.float32, device="cpu")
    return NullRunner(storage, [SPEC], vocabulary=vocabulary, avoid=avoid)


def test_verification_agrees_with_the_proposal() -> None:
    runner = null_runner()
    (proposed,) = runner.run([Window((5, 6, 7), 4, (1, 2, 3), placeholders=3, logits=4)]).outputs
    block = proposed.argmax[1:]
    (verified,) = runner.run([Window((proposed.argmax[0], *block), 7, (1, 2, 3), logits=4, targets=block)]).outputs
    assert verified.argmax[:3] == block
    assert verified.probabilities == (1.0, 1.0, 1.0)
    assert proposed.confidences == (1.0,) * 4


def test_tokens_vary_and_avoid() -> None:
    runner = null_runner()
    tokens = [runner.token_at(index) for index in range(500)]
    assert set(tokens) <= set(range(3, 50))
    assert len(set(tokens)) > 30
