"""What a gate would commit on recorded blocks, threshold by threshold: tokens per cycle against non-AR tokens.

A block's first token is the AR token and always committed. A candidate is committed when its own score and those of all
before it exceed the threshold, and is a non-AR token when it is not the proposer's argmax given the block so far.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from prove_core.decoding.acceptance import Evidence
from prove_core.training.gate_records import BlockRecord

ScoredBlock = Sequence[tuple[float, bool]]  # of each candidate in order: a gate's score, and whether it is right


def scored(records: Sequence[BlockRecord], score: Callable[[Evidence], float]) -> list[ScoredBlock]:
    """The blocks with the scores that a gate gives their candidates."""
    return [[(score(each.evidence), each.right) for each in record.candidates] for record in records]


def until_wrong(block: ScoredBlock) -> ScoredBlock:
    """The candidates up to and including the first that is wrong."""
    labels = [right for _, right in block]
    return block[: labels.index(False) + 1] if False in labels else block


@dataclass(frozen=True, slots=True)
class Point:
    """One threshold: committed tokens per cycle, and which share of the committed tokens is not the AR token."""

    threshold: float
    tokens_per_cycle: float
    non_ar_share: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Committed and non-AR candidates of `blocks` blocks at each threshold where they change.

    `levels` fall; with a threshold just below `levels[i]`, `committed[i]` candidates are committed, `wrong[i]` of them
    non-AR.
    """

    blocks: int
    levels: tuple[float, ...]
    committed: tuple[int, ...]
    wrong: tuple[int, ...]

    def at(self, threshold: float) -> Point:
        """The gate `score > threshold`."""
        # levels fall, so their negatives rise: as many as are above the threshold
        count = int(np.searchsorted(-np.asarray(self.levels), -threshold, side="left"))
        return self._point(count, threshold)

    def at_share(self, share: float) -> Point:
        """The gate that commits most with at most this `share` (0..1) of non-AR tokens.

        Between two thresholds it is the mix of both, some blocks each, that has exactly this share; `threshold` is the
        stricter of the two.
        """
        counts = range(len(self.levels) + 1)
        strict = max(count for count in counts if self._wrong(count) <= share * self._tokens(count))
        threshold = self._below(strict)
        if strict == counts[-1]:
            return self._point(strict, threshold)
        tokens, more_tokens = self._tokens(strict), self._tokens(strict + 1)
        slack, excess = share * tokens - self._wrong(strict), self._wrong(strict + 1) - share * more_tokens
        mixed = tokens + slack / (slack + excess) * (more_tokens - tokens)
        return Point(threshold, mixed / self.blocks, share)

    def _tokens(self, count: int) -> int:
        return self.blocks + (self.committed[count - 1] if count else 0)

    def _wrong(self, count: int) -> int:
        return self.wrong[count - 1] if count else 0

    def _point(self, count: int, threshold: float) -> Point:
        tokens = self._tokens(count)
        return Point(threshold, tokens / self.blocks, self._wrong(count) / tokens)

    def _below(self, count: int) -> float:
        """The threshold at which exactly the first `count` levels are committed."""
        return self.levels[count] if count < len(self.levels) else 0.0


def curve(blocks: Sequence[ScoredBlock]) -> Curve:
    """The curve of a gate over at least one block."""
    lowest: list[float] = []
    wrong: list[bool] = []
    for block in blocks:
        # a candidate goes through only where all before it do: what counts is the lowest score so far
        lowest += accumulate((score for score, _ in block), min)
        wrong += [not right for _, right in block]
    values, inverse = np.unique(np.asarray(lowest, dtype=np.float64), return_inverse=True)
    committed = np.cumsum(np.bincount(inverse, minlength=len(values))[::-1])
    errors = np.cumsum(np.bincount(inverse, weights=wrong, minlength=len(values))[::-1])
    possible = int((values > 0).sum())  # no threshold lets a score of 0 through
    return Curve(
        len(blocks),
        tuple(values[::-1][:possible].tolist()),
        tuple(committed[:possible].tolist()),
        tuple(errors.astype(int)[:possible].tolist()),
    )


@dataclass(frozen=True, slots=True)
class Bin:
    """Candidates whose score lies in one part of 0..1: how many, their mean score, and the share that is right."""

    count: int
    mean_score: float
    right_share: float


def calibration(candidates: ScoredBlock, bins: int = 10) -> list[Bin]:
    """`bins` equal parts of 0..1, without those that are empty."""
    parts: list[list[tuple[float, bool]]] = [[] for _ in range(bins)]
    for value, right in candidates:
        parts[min(int(value * bins), bins - 1)].append((value, right))
    return [
        Bin(len(part), sum(value for value, _ in part) / len(part), sum(right for _, right in part) / len(part))
        for part in parts
        if part
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Expected calibration error: the mean over candidates of how far their bin's score is from its share of right."""
    total = sum(part.count for part in bins)
    return sum(part.count * abs(part.mean_score - part.right_share) for part in bins) / total
