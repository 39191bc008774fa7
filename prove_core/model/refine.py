"""Proposals, one placeholder after another, where a choice depends on the one before it.

It does so through the sequential head and what the context recalls, through penalties, or both; draws, made here too,
are coupled to those of the verifying rows by their noise (see `draw`).
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise
from typing import Protocol

import torch
from torch import Tensor, nn

from prove_core.model.alternatives import RANKS, Candidates, alternatives
from prove_core.model.draw import draw
from prove_core.model.head_walk import HeadWalk, PreparedRows
from prove_core.model.in_use import InUse, in_use
from prove_core.model.noise import all_scattered, scatter
from prove_core.model.penalties import Occurrences, adjust, adjust_candidates
from prove_core.model.recall import Recall, contexts, match_features
from prove_core.model.sequential import SequentialHead
from prove_core.model.window import Remnant, Window, WindowOutput
from prove_core.types import Alternatives


class _Candidates(Protocol):
    """What the rows of a depth may choose from."""

    def score(self, depth: int, previous: Tensor, where: list[int], adjusted: Tensor) -> tuple[Tensor | None, Tensor]:
        """Ids (None: all, in order) and their float32 scores, both [rows, n], -inf where an id must not be chosen.

        previous [rows], the ids chosen before. The logits of the rows number `where` at that depth are `adjusted`
        [.., vocabulary] by what was chosen since the walk began.
        """
        ...


class _OwnScores:
    """Without a head: all ids by the rows' own logits. `rows` of the pass's outputs by depth."""

    def __init__(self, logits: Tensor, rows: list[Tensor]) -> None:
        self._logits, self._rows = logits, rows

    def score(self, depth: int, previous: Tensor, where: list[int], adjusted: Tensor) -> tuple[None, Tensor]:
        scores = self._logits[self._rows[depth]]
        scores[where] = adjusted
        return None, scores


class _HeadScores:
    """The head down all blocks; those that end early must be the last ones."""

    def __init__(
        self, walk: HeadWalk, refiner: "Refiner", hidden: Tensor, logits: Tensor, blocks: Sequence[InUse]
    ) -> None:
        device = logits.device
        pass_rows = [block.first + depth for block in blocks for depth in range(block.rows)]
        ordinals = [depth for block in blocks for depth in range(block.rows)]
        rows = torch.tensor(pass_rows, dtype=torch.int64, device=device)
        fresh = walk.prepare(hidden[rows], logits[rows], torch.tensor(ordinals, dtype=torch.int64, device=device))
        parts, at = [], 0
        for block in blocks:
            parts.append(fresh[at : at + block.rows])
            at += block.rows
            if isinstance(block.tail.rows, PreparedRows):
                parts.append(block.tail.rows[block.tail_first :])
        self._walk, self._embedding, self._logits = walk, refiner.embedding, logits
        self.rows = PreparedRows.joined(parts)
        ends = [*accumulate([block.length for block in blocks], initial=0)]
        self.blocks = [slice(begin, end) for begin, end in pairwise(ends)]
        self._begins = torch.tensor(ends[:-1], device=device)
        self._blocks = blocks
        self._state = walk.start(len(blocks))
        self._recall = refiner.recall
        self._context = contexts([_first(block) for block in blocks], device) if self._recall else None

    def score(self, depth: int, previous: Tensor, where: list[int], adjusted: Tensor) -> tuple[Tensor, Tensor]:
        rows = self._begins[: len(previous)] + depth
        if where:  # their blocks have no tail
            own = torch.tensor([self._blocks[i].first + depth for i in where], device=rows.device)
            self._walk.relead(self.rows, rows[where], self._logits[own], adjusted)
        before = self._embedding(previous)
        ids, scores, self._state = self._walk.step(self.rows, rows, before, self._state[: len(previous)])
        if self._recall is not None and self._context is not None:
            self._context = torch.cat([self._context[: len(previous)], previous[:, None]], dim=1)
            scores = scores + self._recall.bonuses(match_features(self._context, ids, self._logits.shape[1]))
        return ids, scores


def _first(block: InUse) -> "array[int]":
    """The context of the block's first row but for the last token."""
    return block.context[: len(block.context) - 1 - block.known]


@dataclass(frozen=True, slots=True)
class Walked:
    """What the rows of a block propose, with its confidences; and alternatives, where its tokens are the likeliest.

    Where its window keeps them, all rows for a later walk.
    """

    ids: list[int]
    confidences: list[float]
    alternatives: Alternatives = ()
    remnant: Remnant | None = None


class Walk(Protocol):
    """The head down blocks that take the likeliest token each time."""

    def __call__(self, hidden: Tensor, logits: Tensor, blocks: Sequence[InUse]) -> list[Walked]:
        """Of each block; hidden [rows, hidden] and logits [rows, vocabulary] as in `Refiner.refine`."""
        ...


class Refiner:
    """Replaces what a pass says at placeholder rows; other rows, those of AR and verification, stay as they are.

    `embedding` maps ids to input embeddings, `output` is the model's head [vocabulary, hidden]. `alone`: windows are
    worked on one by one, so that no result depends on what else is in the pass. Without a sequential `head` only
    windows that sample need it. `recall` adds to what the head says. `walk` goes down blocks that neither draw nor
    adjust, if given, and knows `recall` itself.
    """

    def __init__(
        self,
        head: SequentialHead | None,
        embedding: nn.Module,
        output: Tensor,
        *,
        alone: bool,
        recall: Recall | None = None,
        walk: Walk | None = None,
    ) -> None:
        self._straight = walk
        self._head = None if head is None else HeadWalk(head, output)
        self.recall = None if head is None else recall
        self.embedding = embedding
        self._alone = alone

    def refine(
        self, hidden: Tensor | None, logits: Tensor, windows: Sequence[Window], outputs: list[WindowOutput]
    ) -> list[WindowOutput]:
        """`hidden` [rows, hidden], `logits` [rows, vocabulary] (banned ids at -inf): those of the outputs' rows.

        `hidden` may be None without a head.
        """
        blocks = in_use(windows, outputs, sampled_only=self._head is None)
        walked: list[tuple[InUse, Walked]] = []
        if self._straight is not None and hidden is not None:
            plain = [block for block in blocks if not block.samples]
            blocks = [block for block in blocks if block.samples]
            walked = [*zip(plain, self._straight(hidden, logits, plain) if plain else (), strict=True)]
        for group in [[block] for block in blocks] if self._alone else [blocks] if blocks else []:
            walked += self._walk(hidden, logits, group)
        refined = list(outputs)
        walked.sort(key=lambda walk: (walk[0].window, walk[0].first))
        for window, walks in groupby(walked, key=lambda walk: walk[0].window):
            refined[window] = _with_drafts(outputs[window], windows[window], [found for _, found in walks])
        return refined

    def _walk(self, hidden: Tensor | None, logits: Tensor, blocks: Sequence[InUse]) -> list[tuple[InUse, Walked]]:
        """Down the placeholders of all `blocks` at once, deepest first, so that those that go on are a prefix."""
        blocks = sorted(blocks, key=lambda block: -block.length)
        device = logits.device
        previous = torch.tensor([block.before(0) for block in blocks], device=device)
        depths = range(blocks[0].length)
        alive = [[block for block in blocks if block.length > depth] for depth in depths]
        head = None
        if self._head is not None and hidden is not None:
            head = _HeadScores(self._head, self, hidden, logits, blocks)
        rows = [torch.tensor([b.first + d for b in alive[d]], device=device) for d in depths] if head is None else []
        candidates: _Candidates = _OwnScores(logits, rows) if head is None else head
        seen = [block.seen for block in blocks]
        ids: list[list[int]] = [[] for _ in blocks]
        confidences: list[list[float]] = [[] for _ in blocks]
        others: list[list[Candidates]] = [[] for _ in blocks]
        for depth in depths:
            going = alive[depth]
            where, adjusted = _adjusted(logits, going, seen, depth)
            chosen_from, scores = candidates.score(depth, previous, where, adjusted)
            chosen, confidence = _choices(chosen_from, scores, going, seen, depth)
            leading = _leading(chosen_from, scores) if chosen_from is not None else []
            tokens = chosen.tolist()
            for i, (block, probability) in enumerate(zip(going, confidence.tolist(), strict=True)):
                if depth < block.known:
                    tokens[i] = block.before(depth + 1)
                    continue
                ids[i].append(tokens[i])
                confidences[i].append(probability)
                others[i].append(_others(tokens[i], *leading[i]) if leading else ())
                if block.sampling is not None and block.sampling.penalizes:
                    seen[i] = seen[i].then(tokens[i])
            previous = torch.tensor(tokens[: len(alive[depth + 1])] if depth + 1 < len(alive) else [], device=device)
        found = []
        for i, block in enumerate(blocks):
            kept = None
            if head is not None and block.keeps:
                kept = Remnant(block.index, block.length, head.rows[head.blocks[i]].copy(), block.samples)
            beside = () if block.samples else alternatives(confidences[i], others[i])
            found.append((block, Walked(ids[i], confidences[i], beside, kept)))
        return found


def _adjusted(
    logits: Tensor, blocks: Sequence[InUse], seen: Sequence[Occurrences], depth: int
) -> tuple[list[int], Tensor]:
    """Which blocks' rows at a depth are adjusted by what came before, and their logits then."""
    where = [i for i, block in enumerate(blocks) if block.sampling is not None and block.sampling.adjusts]
    own = logits[[blocks[i].first + depth for i in where]]
    for row, i in enumerate(where):
        sampling = blocks[i].sampling
        if sampling is not None:
            adjust(own[row], sampling, seen[i])
    return where, own


def _with_drafts(own: WindowOutput, window: Window, found: list[Walked]) -> WindowOutput:
    drafts = tuple(chain(*[each.ids for each in found])), tuple(chain(*[each.confidences for each in found]))
    others = found[0].alternatives if len(found) == 1 and window.sampling is None else ()
    kept = (found[0].remnant or window.remnant) if window.keeps else None
    same = own.argmax, own.confidences, own.probabilities
    return WindowOutput(*same, *drafts, own.logprobs, own.behind, others, kept)


def _choices(
    ids: Tensor | None, scores: Tensor, blocks: Sequence[InUse], seen: Sequence[Occurrences], depth: int
) -> tuple[Tensor, Tensor]:
    """Each block's choice and its probability among the candidates, int64 and float32 [rows]."""
    if ids is not None:
        for i, block in enumerate(blocks):
            if block.sampling is not None and block.sampling.adjusts:
                adjust_candidates(scores[i], ids[i], block.sampling, seen[i])
    best = scores.argmax(-1)
    drawing = [(i, (b.sampling, b.index + depth)) for i, b in enumerate(blocks) if b.sampling and b.sampling.draws]
    if drawing:
        where = torch.tensor([i for i, _ in drawing], device=scores.device)
        scattered = all_scattered(scores.shape[1], scores.device) if ids is None else scatter(ids[where])
        best[where] = draw(scores[where], [ask for _, ask in drawing], scattered)
    probability = torch.softmax(scores, -1).gather(-1, best[:, None])[:, 0]
    return best if ids is None else ids.gather(-1, best[:, None])[:, 0], probability


def _leading(ids: Tensor, scores: Tensor) -> list[tuple[list[int], list[float]]]:
    """Each row's likeliest ids, and their probabilities among the candidates."""
    probabilities, where = torch.softmax(scores, -1).topk(min(RANKS + 1, scores.shape[1]), dim=-1)
    return list(zip(ids.gather(-1, where).tolist(), probabilities.tolist(), strict=True))


def _others(chosen: int, ids: list[int], probabilities: list[float]) -> Candidates:
    return [(id, chance) for id, chance in zip(ids, probabilities, strict=True) if id != chosen][:RANKS]
