"""Proposals, one placeholder after another, where a choice depends on the one before it.

It does so through the sequential head and what the context recalls, through penalties, or both; draws, made here too,
are coupled to those of the verifying rows by their noise (see `draw`).
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, groupby
from typing import Protocol

import torch
from torch import Tensor, nn

from prove_core.model.alternatives import RANKS, Candidates, alternatives
from prove_core.model.draw import draw
from prove_core.model.head_walk import HeadWalk
from prove_core.model.noise import all_scattered, scatter
from prove_core.model.penalties import NOTHING, Occurrences, adjust, adjust_candidates
from prove_core.model.recall import Recall, contexts, match_features
from prove_core.model.sampled import occurrences
from prove_core.model.sequential import SequentialHead
from prove_core.model.window import Window, WindowOutput
from prove_core.types import Alternatives, SamplingParams


@dataclass(slots=True)
class _Block:
    """A group of a window that is in use: its rows among the pass's outputs, and the token that they follow.

    The first row predicts the token at `index` of the sequence; `seen` is what comes before that. `context` are the
    tokens before `token`, where something recalls them.
    """

    window: int
    first: int
    rows: int
    token: int
    index: int
    sampling: SamplingParams | None
    seen: Occurrences
    context: "array[int]"

    @property
    def penalizes(self) -> bool:
        return self.sampling is not None and self.sampling.penalizes

    @property
    def samples(self) -> bool:
        return self.sampling is not None and (self.sampling.adjusts or self.sampling.draws)


class _Candidates(Protocol):
    """What the rows of a depth may choose from."""

    def score(self, depth: int, logits: Tensor, previous: Tensor, adjusted: bool) -> tuple[Tensor | None, Tensor]:
        """Ids (None: all, in order) and their float32 scores, both [rows, n], -inf where an id must not be chosen.

        logits [rows, vocabulary] are those of the rows at `depth`, if they have been `adjusted` since the walk began (a
        head needs them only then); previous [rows], the ids chosen before.
        """
        ...


class _OwnScores:
    """Without a head: all ids by the rows' own logits."""

    def score(self, depth: int, logits: Tensor, previous: Tensor, adjusted: bool) -> tuple[None, Tensor]:
        return None, logits


class _HeadScores:
    """The head down all blocks; those that end early must be the last ones. `rows` of the pass's outputs by depth."""

    def __init__(
        self,
        refiner: "Refiner",
        head: SequentialHead,
        hidden: Tensor,
        logits: Tensor,
        rows: list[Tensor],
        blocks: list[_Block],
    ) -> None:
        every = torch.cat(rows)
        counts = [len(part) for part in rows]
        depths = torch.arange(len(rows), device=every.device)
        ordinals = depths.repeat_interleave(torch.tensor(counts, device=every.device))
        self._embedding = refiner.embedding
        self._logits, self._rows = logits, rows
        self._walk = HeadWalk(head, hidden[every], logits[every], ordinals, refiner.output)
        self._ends = list(accumulate(counts, initial=0))
        self._state = self._walk.start(counts[0])
        self._recall = refiner.recall
        self._context = contexts([block.context for block in blocks], logits.device) if self._recall else None

    def score(self, depth: int, logits: Tensor, previous: Tensor, adjusted: bool) -> tuple[Tensor, Tensor]:
        part = slice(self._ends[depth], self._ends[depth + 1])
        if adjusted:
            self._walk.relead(part, self._logits[self._rows[depth]], logits)
        before = self._embedding(previous)
        ids, scores, self._state = self._walk.step(part, before, self._state[: len(previous)])
        if self._recall is not None and self._context is not None:
            self._context = torch.cat([self._context[: len(previous)], previous[:, None]], dim=1)
            scores = scores + self._recall.bonuses(match_features(self._context, ids, self._logits.shape[1]))
        return ids, scores


@dataclass(frozen=True, slots=True)
class Walked:
    """What the rows of a block propose, with its confidences; and alternatives, where its tokens are the likeliest."""

    ids: list[int]
    confidences: list[float]
    alternatives: Alternatives = ()


class Walk(Protocol):
    """The head down blocks that take the likeliest token each time."""

    def __call__(self, hidden: Tensor, logits: Tensor, blocks: Sequence[tuple[int, int, "array[int]"]]) -> list[Walked]:
        """Of each block, given as its first row, its rows, and the tokens that it follows.

        hidden [rows, hidden] and logits [rows, vocabulary] as in `Refiner.refine`.
        """
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
        self._head = head
        self.recall = None if head is None else recall
        self.embedding = embedding
        self.output = output
        self._alone = alone

    def refine(
        self, hidden: Tensor | None, logits: Tensor, windows: Sequence[Window], outputs: list[WindowOutput]
    ) -> list[WindowOutput]:
        """`hidden` [rows, hidden], `logits` [rows, vocabulary] (banned ids at -inf): those of the outputs' rows.

        `hidden` may be None without a head.
        """
        blocks = _blocks(windows, outputs, sampled_only=self._head is None, recalls=self.recall is not None)
        walked: list[tuple[_Block, Walked]] = []
        if self._straight is not None and hidden is not None:
            plain = [block for block in blocks if not block.samples]
            blocks = [block for block in blocks if block.samples]
            asked = [(block.first, block.rows, block.context + array("i", (block.token,))) for block in plain]
            found = self._straight(hidden, logits, asked) if asked else []
            walked = list(zip(plain, found, strict=True))
        for group in [[block] for block in blocks] if self._alone else [blocks] if blocks else []:
            walked += self._walk(hidden, logits, group)
        refined = list(outputs)
        walked.sort(key=lambda walk: walk[0].first)
        for window, walks in groupby(walked, key=lambda walk: walk[0].window):
            refined[window] = _with_drafts(outputs[window], windows[window], [found for _, found in walks])
        return refined

    def _walk(self, hidden: Tensor | None, logits: Tensor, blocks: list[_Block]) -> list[tuple[_Block, Walked]]:
        """Down the placeholders of all `blocks` at once, deepest first, so that those that go on are a prefix."""
        blocks = sorted(blocks, key=lambda block: -block.rows)
        previous = torch.tensor([block.token for block in blocks], device=logits.device)
        depths = range(blocks[0].rows)
        alive = [[block for block in blocks if block.rows > depth] for depth in depths]
        rows = [torch.tensor([b.first + d for b in alive[d]], device=logits.device) for d in depths]
        candidates: _Candidates = _OwnScores()
        if self._head is not None and hidden is not None:
            candidates = _HeadScores(self, self._head, hidden, logits, rows, blocks)
        ids: list[list[int]] = [[] for _ in blocks]
        confidences: list[list[float]] = [[] for _ in blocks]
        others: list[list[Candidates]] = [[] for _ in blocks]
        for depth in depths:
            going = blocks[: len(alive[depth])]
            adjusting = [(i, b, b.sampling) for i, b in enumerate(going) if b.sampling and b.sampling.adjusts]
            own = logits[rows[depth]] if adjusting or self._head is None else logits[:0]
            for i, block, sampling in adjusting:
                adjust(own[i], sampling, block.seen)
            chosen_from, scores = candidates.score(depth, own, previous[: len(going)], bool(adjusting))
            previous, confidence = _choices(chosen_from, scores, going, depth)
            leading = _leading(chosen_from, scores) if chosen_from is not None else []
            for i, (token, probability) in enumerate(zip(previous.tolist(), confidence.tolist(), strict=True)):
                ids[i].append(token)
                confidences[i].append(probability)
                others[i].append(_others(token, *leading[i]) if leading else ())
                if going[i].penalizes:
                    blocks[i] = replace(going[i], seen=going[i].seen.then(token))
        return [
            (block, Walked(ids[i], confidences[i], () if block.samples else alternatives(confidences[i], others[i])))
            for i, block in enumerate(blocks)
        ]


def _with_drafts(own: WindowOutput, window: Window, found: list[Walked]) -> WindowOutput:
    drafts = tuple(chain(*[each.ids for each in found])), tuple(chain(*[each.confidences for each in found]))
    others = found[0].alternatives if len(found) == 1 and window.sampling is None else ()
    return WindowOutput(own.argmax, own.confidences, own.probabilities, *drafts, own.logprobs, own.behind, others)


def _choices(ids: Tensor | None, scores: Tensor, blocks: list[_Block], depth: int) -> tuple[Tensor, Tensor]:
    """Each block's choice and its probability among the candidates, int64 and float32 [rows]."""
    if ids is not None:
        for i, block in enumerate(blocks):
            if block.sampling is not None and block.sampling.adjusts:
                adjust_candidates(scores[i], ids[i], block.sampling, block.seen)
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


def _blocks(
    windows: Sequence[Window], outputs: Sequence[WindowOutput], *, sampled_only: bool, recalls: bool
) -> list[_Block]:
    """The groups that are in use, with their contexts where something `recalls` them."""
    begins = accumulate((window.outputs for window in windows), initial=0)
    blocks = []
    for index, (window, output, begin) in enumerate(zip(windows, outputs, begins, strict=False)):
        for chosen in [] if sampled_only and window.sampling is None else window.chosen(output.argmax):
            seen = NOTHING
            if window.sampling is not None and window.sampling.penalizes:
                seen = occurrences(window, window.sampling, chosen.index - 1).then(chosen.token)
            context = window.context(chosen) if recalls else array("i")
            place = begin + chosen.row, chosen.count, chosen.token, chosen.index
            blocks.append(_Block(index, *place, window.sampling, seen, context))
    return blocks
