"""Fitting a recall: what matches are worth is found again, and adapters that cannot use one are refused."""

from pathlib import Path

import pytest
import torch

from prove_core.config import ModelConfig
from prove_core.errors import DataError
from prove_core.model.adapters import AdapterKind, AdapterRecord, BaseRecord, save_adapter
from prove_core.model.recall import LONGEST, Recall
from prove_core.training.recall import Scored, fit_recall, fitted, train_recall
from tests.core.tiny import tiny_model
from tests.core.training.examples import greedy_examples, stirred_proposer


def drafts(truth: Recall, blocks: int, sharpness: float) -> Scored:
    """Candidates drawn by scores, of which only a part is told, and what `truth` adds."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(blocks, 3, 5, generator=generator)
    lengths = torch.randint(0, LONGEST + 1, (blocks, 3, 5), generator=generator)
    latest = torch.rand(blocks, 3, 5, generator=generator) < 0.3
    steps = torch.arange(1, LONGEST + 1)
    features = torch.cat([lengths[..., None] >= steps, latest[..., None]], -1).float()
    chances = torch.softmax(scores * sharpness + truth.bonuses(features) * sharpness, -1)
    right = torch.multinomial(chances.view(-1, 5), 1, generator=generator).view(blocks, 3)
    return Scored(scores, features, right)


def test_what_matches_are_worth_is_found_again() -> None:
    truth = Recall((1.0, 0.5, 0.0, 0.8, 0.3, 0.6), 0.7)
    for sharpness in (0.6, 1.0):
        recall = fitted(drafts(truth, 20_000, sharpness))
        assert (*recall.matches, recall.latest) == pytest.approx((*truth.matches, truth.latest), abs=0.15)


def test_drafts_that_are_not_known_count_for_nothing() -> None:
    known = drafts(Recall((1.0,), 0.5), 2000, 1.0)
    more = Scored(
        torch.cat([known.scores, 9 * torch.ones(50, 3, 5)]),
        torch.cat([known.features, torch.ones(50, 3, 5, LONGEST + 1)]),
        torch.cat([known.right, torch.full((50, 3), -1)]),
    )
    assert fitted(more) == fitted(known)


def test_a_proposer_and_its_answers() -> None:
    examples = greedy_examples(tiny_model("llama"), 6, length=30)
    proposer = stirred_proposer("llama")
    fit = fit_recall(proposer, examples)
    assert fit == fit_recall(proposer, examples)
    assert fit.drafts > 0
    assert fit.prefix_after >= fit.prefix_before


def test_an_adapter_without_a_head_is_refused(tmp_path: Path) -> None:
    record = AdapterRecord(kind=AdapterKind.GATED, base=BaseRecord(name="base"), block_size=4)
    tensors = {f"base_model.model.x.lora_{part}.weight": torch.zeros(2, 2) for part in "AB"}
    save_adapter(tmp_path / "a", tensors, record, rank=2, alpha=2, placeholder=torch.zeros(1, 2))
    with pytest.raises(DataError, match="no sequential head"):
        train_recall(ModelConfig(checkpoint="base"), [tmp_path / "none.jsonl"], tmp_path / "a", limit=1)
