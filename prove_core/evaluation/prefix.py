"""AR-matching prefix: how many leading tokens of a proposed block equal the proposer's own greedy continuation.

Anchors stand along greedy AR trajectories. At each, the first token of the block is the AR token and always matches;
L is 1 plus the number of leading placeholders whose argmax is the trajectory's token.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from prove_core.errors import DataError
from prove_core.model.sequential import choose
from prove_core.training.dataset import Example
from prove_core.training.layout import BlockBatch, lay_out
from prove_core.training.proposer import BlockProposer


@dataclass(frozen=True, slots=True)
class PrefixFigures:
    """Over all anchors: `mean` is L (1 .. block_size); per placeholder, P(it matches) and P(all up to it match)."""

    block_size: int
    anchors: int
    mean: float
    match: tuple[float, ...]
    survival: tuple[float, ...]


def anchors_along(example: Example, block_size: int, stride: int) -> list[int]:
    """Every `stride`-th position from the last prompt token whose whole block lies inside the answer."""
    return list(range(len(example.prompt) - 1, len(example.tokens) - block_size, stride))


def figures(matches: Tensor) -> PrefixFigures:
    """`matches` is [anchors, block_size - 1] bool: does each placeholder's argmax equal the trajectory's token?"""
    leading = matches.long().cumprod(dim=1)
    return PrefixFigures(
        block_size=matches.shape[1] + 1,
        anchors=matches.shape[0],
        mean=round(1.0 + leading.sum(dim=1).float().mean().item(), 4),
        match=_shares(matches),
        survival=_shares(leading),
    )


def _shares(rows: Tensor) -> tuple[float, ...]:
    return tuple(round(value, 4) for value in rows.float().mean(dim=0).tolist())


@torch.no_grad()
def measure(
    proposer: BlockProposer, trajectories: Sequence[Example], block_size: int, *, stride: int = 4, batch: int = 4
) -> PrefixFigures:
    """Run `proposer` at anchors along `trajectories` (prompts with the stock model's greedy answers).

    Placeholders beyond those it was trained with use the last one's embedding. Raises DataError when every answer is
    shorter than a block.
    """
    usable = [t for t in trajectories if anchors_along(t, block_size, stride)]
    if not usable:
        raise DataError(f"no trajectory has an answer longer than a block of {block_size} tokens")
    usable.sort(key=lambda trajectory: len(trajectory.tokens))
    matches = []
    for start in range(0, len(usable), batch):
        part = usable[start : start + batch]
        layout = lay_out(part, [anchors_along(t, block_size, stride) for t in part], block_size)
        matches.append(_matches(proposer, layout))
    return figures(torch.cat(matches))


def _matches(proposer: BlockProposer, batch: BlockBatch, chunk: int = 16) -> Tensor:
    """[anchors, W] bool for the blocks whose targets are all known (padding blocks have none)."""
    targets = batch.targets.flatten(0, 1)
    known = (targets >= 0).all(dim=1)
    hidden = proposer.rows(batch).placeholders
    corrected = proposer.corrected(hidden, batch).flatten(0, 1)[known]
    parts = zip(torch.split(hidden.flatten(0, 1)[known], chunk), torch.split(corrected, chunk), strict=True)
    return torch.cat([_chosen(proposer, *part) for part in parts]) == targets[known]


def _chosen(proposer: BlockProposer, hidden: Tensor, corrected: Tensor) -> Tensor:
    """The ids that an engine proposes for [blocks, W, hidden] rows, where it recalls nothing."""
    logits = functional.linear(hidden.flatten(0, 1), proposer.head)
    if proposer.sequential is None:
        return logits.argmax(-1).view(hidden.shape[:2])
    return choose(logits, corrected.flatten(0, 1), proposer.head)[0].view(hidden.shape[:2])
