"""Where placeholders stand in training, as plain tensors.

A block anchored at s has W = block_size - 1 placeholders at positions s+1 .. s+W. Placeholder i (from 1) sees the clean
tokens at positions <= s and the placeholders 1..i of its own block, and predicts the token at s+1+i. So rows are laid
out block by block, and the mask factors into "clean tokens up to the anchor" and "causal within the block":

    clean   t_0 ... t_s t_s+1 ...            [batch, length]
    rows    m m m m m m m | m m m m m m m    [batch, blocks, W]
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prove_core.training.dataset import Example

NO_TARGET = -1


@dataclass(frozen=True, slots=True)
class BlockBatch:
    """A batch of clean sequences and their anchored blocks. All int64.

    tokens    [batch, length]     clean ids, padded on the right with 0 (causal rows never see the padding)
    anchors   [batch, blocks]     position of each block's last visible clean token; padding blocks repeat anchor 0
    previous  [batch, blocks, W]  id of the token just before each target; 0 beyond the answer and in padding blocks
    targets   [batch, blocks, W]  id that each placeholder predicts; NO_TARGET beyond the answer and in padding blocks
    """

    tokens: Tensor
    anchors: Tensor
    previous: Tensor
    targets: Tensor

    @property
    def positions(self) -> Tensor:
        """[batch, blocks * W]: each placeholder's position."""
        batch, blocks, width = self.targets.shape
        offsets = torch.arange(1, width + 1, device=self.anchors.device)
        return (self.anchors[:, :, None] + offsets).reshape(batch, blocks * width)

    def visible(self) -> Tensor:
        """[batch, blocks, length] bool: which clean tokens the placeholders of a block see."""
        return torch.arange(self.tokens.shape[1], device=self.anchors.device) <= self.anchors[:, :, None]

    def before_targets(self, clean: Tensor) -> Tensor:
        """[batch, blocks, W, H]: of clean rows [batch, length, H], those whose AR token each target is."""
        rows = self.positions.view(self.targets.shape).clamp(max=clean.shape[1] - 1)
        return clean[torch.arange(len(clean), device=clean.device)[:, None, None], rows]

    def to(self, device: torch.device) -> "BlockBatch":
        """The same on another device."""
        return BlockBatch(*(t.to(device) for t in (self.tokens, self.anchors, self.previous, self.targets)))


@dataclass(frozen=True, slots=True)
class CleanBatch:
    """A batch of clean sequences: tokens as in BlockBatch, and targets [batch, length], int64.

    A target is the token that follows, where it belongs to the answer; NO_TARGET elsewhere.
    """

    tokens: Tensor
    targets: Tensor

    def to(self, device: torch.device) -> "CleanBatch":
        """The same on another device."""
        return CleanBatch(self.tokens.to(device), self.targets.to(device))


def pad(examples: Sequence[Example]) -> CleanBatch:
    """Tensors for `examples`, padded on the right."""
    length = max(len(example.tokens) for example in examples)
    tokens = torch.zeros(len(examples), length, dtype=torch.int64)
    targets = torch.full((len(examples), length), NO_TARGET, dtype=torch.int64)
    for row, example in enumerate(examples):
        tokens[row, : len(example.tokens)] = torch.tensor(example.tokens)
        start = len(example.prompt) - 1
        targets[row, start : start + len(example.answer)] = torch.tensor(example.answer)
    return CleanBatch(tokens, targets)


def possible_anchors(example: Example) -> range:
    """Anchors whose first placeholder has a target: the last prompt token .. the third token from the end."""
    return range(len(example.prompt) - 1, len(example.prompt) + len(example.answer) - 2)


def choose_anchors(example: Example, blocks: int, rng: random.Random) -> list[int]:
    """Up to `blocks` distinct anchors, uniformly at random, in ascending order."""
    possible = possible_anchors(example)
    return sorted(rng.sample(possible, min(blocks, len(possible))))


def lay_out(examples: Sequence[Example], anchors: Sequence[Sequence[int]], block_size: int) -> BlockBatch:
    """Tensors for `examples`, each with its own anchors (every anchor a position inside its example)."""
    width = block_size - 1
    length = max(len(example.tokens) for example in examples)
    blocks = max(1, *(len(positions) for positions in anchors))
    tokens = torch.zeros(len(examples), length, dtype=torch.int64)
    starts = torch.zeros(len(examples), blocks, dtype=torch.int64)
    previous = torch.zeros(len(examples), blocks, width, dtype=torch.int64)
    targets = torch.full((len(examples), blocks, width), NO_TARGET, dtype=torch.int64)
    offsets = torch.arange(2, width + 2)
    for row, (example, positions) in enumerate(zip(examples, anchors, strict=True)):
        ids = torch.tensor(example.tokens)
        tokens[row, : len(ids)] = ids
        if positions:
            at = torch.tensor(positions)
            starts[row, : len(at)] = at
            predicted = at[:, None] + offsets
            known = predicted < len(ids)
            targets[row, : len(at)][known] = ids[predicted[known]]
            previous[row, : len(at)][known] = ids[predicted[known] - 1]
    return BlockBatch(tokens, starts, previous, targets)
