"""Logits into what leaves a runner: chosen ids, their probabilities, and probabilities of given ids."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Protocol

import torch
from torch import Tensor

from prove_core.model.logprobs import with_logprobs
from prove_core.model.sampled import adjust_token_rows, drawn_token_rows
from prove_core.model.window import Window, WindowOutput
from prove_core.types import TokenIds


@dataclass(slots=True)
class Asked:
    """What to read of rows of logits: the choice in each of `rows`, and its probability if that is `weighed`.

    And the probability of `ids[i]` in row `where[i]`, a weighed one. Chosen is the likeliest id, the first of them, or
    what was `drawn` for the row.
    """

    rows: list[int] = field(default_factory=list)
    weighed: list[bool] = field(default_factory=list)
    where: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    drawn: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Read:
    """The choice of each row of logits and its probability, anything where that was not asked; and those of ids.

    Probabilities are a float32 softmax over the row.
    """

    best: list[int]
    confidences: list[float]
    probabilities: list[float]


class Reader(Protocol):
    """Reads contiguous logits [rows, vocabulary]. What it says of a row has the same bits whatever else is asked."""

    def __call__(self, logits: Tensor, asked: Asked) -> Read: ...


def read_rows(logits: Tensor, asked: Asked) -> Read:
    """Implements `Reader` by probabilities of whole rows, all of them."""

    def tensor(values: Iterable[int]) -> Tensor:
        return torch.tensor([*values], dtype=torch.int64, device=logits.device)

    best = logits.argmax(-1)
    if asked.drawn:
        best[tensor(asked.drawn)] = tensor(asked.drawn.values())
    # row by row and in one thread each, unlike logsumexp
    probabilities = torch.softmax(logits, -1)
    found = probabilities[tensor(asked.where), tensor(asked.ids)].tolist() if asked.ids else []
    return Read(best.tolist(), probabilities.gather(-1, best[:, None])[:, 0].tolist(), found)


class Scorer:
    """Bans ids, then reads choices and probabilities off a float32 softmax. `banned` beyond `vocabulary` is dropped.

    `drafts`: placeholders' own choices are drafts; without, somebody else makes them.
    """

    def __init__(
        self,
        banned: Tensor | Sequence[int],
        *,
        vocabulary: int,
        device: torch.device,
        read: Reader = read_rows,
        drafts: bool = True,
    ) -> None:
        self._read = read
        self._drafts = drafts
        ids = torch.as_tensor(banned, dtype=torch.int64).flatten()
        self._banned = ids[ids < vocabulary].to(device)
        self._bans = len(self._banned) > 0

    def mask(self, logits: Tensor, windows: Sequence[Window]) -> Tensor:
        """The logits rows of all windows, in order, in float32 and with ids that must not be chosen at -inf.

        Token rows are adjusted as their sampling asks; placeholders' have to wait for the choices before them.
        `logits` is `[rows, vocabulary]` and may be overwritten; rows beyond those of the windows are ignored.
        """
        count = sum([window.outputs for window in windows])
        if len(logits) != count or logits.dtype is not torch.float32:
            logits = logits[:count].float()
        if self._bans:
            logits.index_fill_(1, self._banned, -torch.inf)
        adjust_token_rows(logits, windows)
        _apply_floors(logits, windows)
        return logits

    def score(self, logits: Tensor, windows: Sequence[Window]) -> list[WindowOutput]:
        """One output per window for masked `logits`."""
        asked = _asked(windows, drafts=self._drafts)
        if not asked.rows:
            return [WindowOutput((), (), ()) for _ in windows]
        if all(window.sampling is None for window in windows):
            return _split(windows, self._read(logits, asked), drafts=self._drafts)
        asked.drawn = drawn_token_rows(logits, windows)
        return with_logprobs(_split(windows, self._read(logits, asked), drafts=self._drafts), logits, windows)


def _apply_floors(logits: Tensor, windows: Sequence[Window]) -> None:
    rows: list[int] = []
    stops: list[int] = []
    first = 0
    for window in windows:
        if window.floor is not None:
            early = [row for row, index in enumerate(_predicted(window), start=first) if index < window.floor.length]
            for row in early:
                known = [stop for stop in window.floor.stop_ids if stop < logits.shape[1]]
                rows.extend([row] * len(known))
                stops.extend(known)
        first += window.outputs
    if rows:
        logits[torch.tensor(rows), torch.tensor(stops)] = -torch.inf


def _predicted(window: Window) -> Iterator[int]:
    """For each of a window's outputs the index in its sequence of the token that it predicts."""
    if window.logits:
        yield from range(window.end - window.logits + 1, window.end + 1)
        for part in window.parts:
            first = window.follows(part) + 1
            yield from range(first, first + part.count)


def _asked(windows: Sequence[Window], *, drafts: bool) -> Asked:
    asked = Asked()
    first = 0
    for window in windows:
        outputs = window.outputs
        tokens = window.logits + window.side_rows
        read = outputs if drafts or not outputs else tokens
        asked.rows.extend(range(first, first + read))
        asked.weighed.extend([window.weighs] * window.logits + [False] * window.side_rows + [True] * (read - tokens))
        if window.weighs:
            asked.where.extend(range(first, first + len(window.targets)))
            asked.ids.extend(window.targets)
        first += outputs
    return asked


def _split(windows: Sequence[Window], read: Read, *, drafts: bool) -> list[WindowOutput]:
    best, confidences = read.best, read.confidences
    outputs = []
    row = target = 0
    for window in windows:
        end = row + window.logits
        target_end = target + len(window.targets) * window.weighs
        argmax = tuple(best[row:end])
        weights = tuple(confidences[row:end]) if window.weighs else ()
        behind = _behind(window, best, end) if window.sides else ()
        chosen = window.chosen(argmax, behind) if drafts else []
        own = [row + group.row + i for group in chosen for i in range(group.known, group.count)]
        found = tuple([best[draft] for draft in own]), tuple([confidences[draft] for draft in own])
        probabilities = tuple(read.probabilities[target:target_end])
        outputs.append(WindowOutput(argmax, weights, probabilities, *found, behind=behind))
        row, target = row + window.outputs, target_end
    return outputs


def _behind(window: Window, best: list[int], row: int) -> tuple[TokenIds, ...]:
    """What the side paths' rows choose, which begin at `row`."""
    ends = [*accumulate((side.count for side in window.sides), initial=row)]
    return tuple(tuple(best[begin:end]) for begin, end in pairwise(ends))
