"""The null runner: one sequence for all, and proposals always agree with verification."""

import torch

from prove_core.attention.base import LayerSpec
from prove_core.kv.storage import KVStorage
from prove_core.model.null import NullRunner
from prove_core.model.window import PlaceholderGroup, Window

SPEC = LayerSpec(0, 1, 1, 1, 1, 1.0)


def null_runner(vocabulary: int = 50, avoid: tuple[int, ...] = (0, 1, 2)) -> NullRunner:
    storage = KVStorage([SPEC.shape], pages=16, page_size=4, dtype=torch.float32, device="cpu")
    return NullRunner(storage, [SPEC], vocabulary=vocabulary, avoid=avoid)


def test_verification_agrees_with_the_proposal() -> None:
    runner = null_runner()
    (proposed,) = runner.run([Window((5, 6, 7), 4, (1, 2, 3), (PlaceholderGroup(2, 3),), logits=1)]).outputs
    block = proposed.drafts
    (verified,) = runner.run([Window((proposed.argmax[0], *block), 7, (1, 2, 3), logits=4, targets=block)]).outputs
    assert verified.argmax[:3] == block
    assert verified.probabilities == (1.0, 1.0, 1.0)
    assert proposed.confidences + proposed.draft_confidences == (1.0,) * 4


def test_branches_go_on_where_verification_stops() -> None:
    runner = null_runner()
    right = tuple(runner.token_at(index) for index in range(8, 12))
    groups = (PlaceholderGroup(0, 2), PlaceholderGroup(2, 3))
    tokens = (5, *right[:2], 0, right[3])
    (output,) = runner.run([Window(tokens, 7, (1, 2, 3, 4, 5), groups, logits=5, targets=tokens[1:])]).outputs
    assert output.argmax == (*right, runner.token_at(12))
    assert output.drafts == tuple(runner.token_at(index) for index in range(11, 14))


def test_tokens_vary_and_avoid() -> None:
    runner = null_runner()
    tokens = [runner.token_at(index) for index in range(500)]
    assert set(tokens) <= set(range(3, 50))
    assert len(set(tokens)) > 30
