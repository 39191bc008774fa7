"""Fitting what a proposer's candidates gain by having followed the same tokens before (see `model.recall`).

The sequential head stays as it is; a few numbers are added to its scores, by least log loss of the model's own answers:
a convex problem.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from prove_core.config import ModelConfig
from prove_core.errors import DataError
from prove_core.model.adapters import read_adapter
from prove_core.model.loader import load
from prove_core.model.progress import SILENT, Progress
from prove_core.model.recall import LONGEST, Recall, contexts, match_features
from prove_core.model.sequential import scored
from prove_core.text.data import DataTokenizer
from prove_core.training.dataset import Example, read_examples
from prove_core.training.export import load_proposer
from prove_core.training.layout import BlockBatch, choose_anchors, lay_out
from prove_core.training.proposer import BlockProposer
from prove_core.training.record import amend_record, check_record

BLOCKS = 32  # per answer
RIDGE = 1e-3
STEPS = 100


@dataclass(frozen=True, slots=True)
class RecallFit:
    """The fit, the drafts that it rests on, and the mean prefix of blocks on the same data without it and with it."""

    recall: Recall
    drafts: int
    prefix_before: float
    prefix_after: float


@dataclass(frozen=True, slots=True)
class Scored:
    """Drafts of blocks: their candidates' scores [blocks, W, C], features [blocks, W, C, F], and which one is right.

    `right` [blocks, W] is its place among the candidates, -1 where it isn't there or not known.
    """

    scores: Tensor
    features: Tensor
    right: Tensor

    def prefix(self, recall: Recall) -> float:
        """1 + the mean number of leading drafts that are right."""
        best = (self.scores + recall.bonuses(self.features)).argmax(-1)
        return 1.0 + (best == self.right).long().cumprod(1).sum(1).float().mean().item()


def train_recall(
    model: ModelConfig, data: Sequence[Path], adapter: Path, *, limit: int, progress: Progress = SILENT
) -> RecallFit:
    """Fit on `limit` answers of `data` and write the result into the adapter's record. `model` is its base.

    Raises DataError for data without drafts and for an adapter without a sequential head, CheckpointError for one that
    does not fit the model, and what loading raises.
    """
    folder = read_adapter(str(adapter))
    record = check_record(folder)
    if not record.sequential:
        raise DataError(f"adapter {adapter} has no sequential head: its drafts are chosen without those before them")
    loaded = load(model.model_copy(update={"layers": record.layers}), progress, attention="sdpa")
    text = DataTokenizer(loaded.info.tokenizer, loaded.info.eos_ids)
    examples = read_examples(data, vocabulary=loaded.info.vocab_size, text=text)
    proposer = load_proposer(loaded.model, folder.path)
    random.Random(0).shuffle(examples)
    progress.stage("scoring drafts", total=min(limit, len(examples)))
    fit = fit_recall(proposer, examples[:limit], lambda: progress.advance(1))
    amend_record(folder, recall=fit.recall)
    return fit


def fit_recall(
    proposer: BlockProposer, examples: Sequence[Example], tick: Callable[[], None] = lambda: None
) -> RecallFit:
    """The recall of least log loss on blocks at random anchors in answers. Deterministic. Raises DataError."""
    rng = random.Random(0)
    parts = []
    for example in examples:
        anchors = choose_anchors(example, BLOCKS, rng)
        if anchors:
            parts.append(_scored(proposer, example, lay_out([example], [anchors], proposer.config.block_size)))
        tick()
    if not parts:
        raise DataError("the recall needs answers of more than two tokens, and the data has none")
    whole = Scored(*(torch.cat([getattr(part, name) for part in parts]) for name in Scored.__slots__))
    recall = fitted(whole)
    return RecallFit(recall, int((whole.right >= 0).sum()), whole.prefix(Recall((), 0.0)), whole.prefix(recall))


@torch.no_grad()
def _scored(proposer: BlockProposer, example: Example, batch: BlockBatch) -> Scored:
    batch = batch.to(proposer.head.device)
    hidden = proposer.rows(batch).placeholders
    corrected = proposer.corrected(hidden, batch)[0]
    rows = hidden[0].flatten(0, 1)
    candidates, scores = scored(functional.linear(rows, proposer.head), corrected.flatten(0, 1), proposer.head)
    targets = batch.targets[0]
    ends = [anchor + 2 + place for anchor in batch.anchors[0].tolist() for place in range(targets.shape[1])]
    context = contexts([example.tokens[: min(end, len(example.tokens))] for end in ends], rows.device)
    features = torch.cat(
        [
            match_features(some, ids, len(proposer.head))
            for some, ids in zip(torch.split(context, 64), torch.split(candidates, 64), strict=True)
        ]
    )
    found = candidates == targets.flatten()[:, None]
    right = torch.where(found.any(1), found.long().argmax(1), -1)
    shape = targets.shape
    return Scored(scores.view(*shape, -1).cpu(), features.view(*shape, -1, LONGEST + 1).cpu(), right.view(shape).cpu())


def fitted(drafts: Scored) -> Recall:
    """The recall of least log loss. Scores may be too sure: they get a temperature, which divides the bonuses."""
    weights = torch.zeros(LONGEST + 1, requires_grad=True)
    sharpness = torch.ones((), requires_grad=True)
    known = drafts.right >= 0
    place = drafts.right.clamp(min=0)[..., None]
    own = torch.log_softmax(drafts.scores, -1).gather(-1, place)[..., 0]
    reached = torch.where(known, own, -torch.inf).exp().cumprod(1)
    share = torch.cat([torch.ones_like(reached[:, :1]), reached[:, :-1]], dim=1) * known  # are those before it right?
    optimizer = torch.optim.LBFGS([weights, sharpness], max_iter=STEPS, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = drafts.scores * sharpness + drafts.features @ weights
        nll = -torch.log_softmax(logits, -1).gather(-1, place)[..., 0]
        value = (nll * share).sum() / share.sum() + RIDGE * (weights**2).sum()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    *matches, latest = (weights / sharpness).detach().tolist()
    return Recall(tuple(round(value, 4) for value in matches), round(latest, 4))
