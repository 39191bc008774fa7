"""Proposals through the sequential head: each placeholder's choice, given the one chosen before it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import nn

from prove_core.model.sequential import SequentialHead, choose
from prove_core.model.window import Window, WindowOutput


@dataclass(frozen=True, slots=True)
class _Block:
    """A window's placeholders among the pass's logits rows: `rows` from `first`, behind the row of the AR token."""

    window: int
    first: int
    rows: int


class Refiner:
    """Replaces what a pass says at placeholder rows; other rows, those of AR and verification, stay as they are.

    `embedding` maps ids to input embeddings, `output` is the model's head [vocabulary, hidden]. `alone`: windows are
    worked on one by one, so that no result depends on what else is in the pass.
    """

    def __init__(self, head: SequentialHead, embedding: nn.Module, output: torch.Tensor, *, alone: bool) -> None:
        self._head = head
        self._embedding = embedding
        self._output = output
        self._alone = alone

    def refine(
        self, hidden: torch.Tensor, logits: torch.Tensor, windows: Sequence[Window], outputs: list[WindowOutput]
    ) -> list[WindowOutput]:
        """`hidden` [rows, hidden], `logits` [rows, vocabulary] (banned ids at -inf): those of the outputs' rows."""
        blocks = _blocks(windows)
        refined = list(outputs)
        for group in [[block] for block in blocks] if self._alone else [blocks] if blocks else []:
            for block, ids, confidences in self._walk(hidden, logits, group, outputs):
                kept = outputs[block.window]
                head = len(kept.argmax) - block.rows
                refined[block.window] = replace(
                    kept,
                    argmax=(*kept.argmax[:head], *ids),
                    confidences=(*kept.confidences[:head], *confidences),
                )
        return refined

    def _walk(
        self, hidden: torch.Tensor, logits: torch.Tensor, blocks: list[_Block], outputs: list[WindowOutput]
    ) -> list[tuple[_Block, list[int], list[float]]]:
        """Down the placeholders of all `blocks` at once, deepest first, so that those that go on are a prefix."""
        blocks = sorted(blocks, key=lambda block: -block.rows)
        previous = torch.tensor([outputs[b.window].argmax[-b.rows - 1] for b in blocks], device=hidden.device)
        state = self._head.start(hidden[: len(blocks)])
        ids: list[list[int]] = [[] for _ in blocks]
        confidences: list[list[float]] = [[] for _ in blocks]
        for depth in range(blocks[0].rows):
            rows = torch.tensor([b.first + depth for b in blocks if b.rows > depth], device=hidden.device)
            before = self._embedding(previous[: len(rows)])
            corrected, state = self._head(hidden[rows], before, depth, state[: len(rows)])
            previous, confidence = choose(logits[rows], corrected, self._output)
            for i, (token, probability) in enumerate(zip(previous.tolist(), confidence.tolist(), strict=True)):
                ids[i].append(token)
                confidences[i].append(probability)
        return list(zip(blocks, ids, confidences, strict=True))


def _blocks(windows: Sequence[Window]) -> list[_Block]:
    """Windows that want an output at every placeholder and at the row before them."""
    ends = accumulate(window.logits for window in windows)
    return [
        _Block(index, end - window.placeholders, window.placeholders)
        for index, (window, end) in enumerate(zip(windows, ends, strict=True))
        if 0 < window.placeholders < window.logits
    ]
