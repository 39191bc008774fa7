"""Logits into what leaves a runner: chosen ids, their probabilities, and probabilities of given ids."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from prove_core.model.logprobs import with_logprobs
from prove_core.model.sampled import adjust_token_rows, drawn_token_rows
from prove_core.model.window import Window, WindowOutput


@dataclass(frozen=True, slots=True)
class Read:
    """What rows of masked logits say: of each the chosen id and its probability, and those of given ids at given rows.

    Probabilities are a float32 softmax over the row.
    """

    best: list[int]
    confidences: list[float]
    probabilities: list[float]


class Reader(Protocol):
    """Reads rows. What it says of one has the same bits however many rows there are."""

    def __call__(self, logits: Tensor, drawn: Mapping[int, int], rows: list[int], ids: list[int]) -> Read:
        """Of contiguous logits [rows, vocabulary]; probabilities of `ids[i]` at row `rows[i]`.

        Chosen is the likeliest id, the first of them, or the one that was `drawn` for the row.
        """
        ...


def read_rows(logits: Tensor, drawn: Mapping[int, int], rows: list[int], ids: list[int]) -> Read:
    """Implements `Reader` by whole rows of probabilities."""

    def tensor(values: Iterable[int]) -> Tensor:
        return torch.tensor([*values], dtype=torch.int64, device=logits.device)

    best = logits.argmax(-1)
    if drawn:
        best[tensor(drawn)] = tensor(drawn.values())
    # row by row and in one thread each, unlike logsumexp
    probabilities = torch.softmax(logits, -1)
    found = probabilities[tensor(rows), tensor(ids)].tolist() if ids else []
    return Read(best.tolist(), probabilities.gather(-1, best[:, None])[:, 0].tolist(), found)


class Scorer:
    """Bans ids, then reads choices and probabilities off a float32 softmax. `banned` beyond `vocabulary` is dropped."""

    def __init__(
        self,
        banned: Tensor | Sequence[int],
        *,
        vocabulary: int,
        device: torch.device,
        read: Reader = read_rows,
    ) -> None:
        self._read = read
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
        if not len(logits):
            return [WindowOutput((), (), ()) for _ in windows]
        read = self._read(logits, drawn_token_rows(logits, windows), *_targets(windows))
        return with_logprobs(_split(windows, read), logits, windows)


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
        for group in window.groups:
            follows = window.start + group.after + 2
            yield from range(follows, follows + group.count)


def _targets(windows: Sequence[Window]) -> tuple[list[int], list[int]]:
    """Rows and ids of every window's targets, one after another."""
    rows: list[int] = []
    ids: list[int] = []
    first = 0
    for window in windows:
        ids.extend(window.targets)
        rows.extend(range(first, first + len(window.targets)))
        first += window.outputs
    return rows, ids


def _split(windows: Sequence[Window], read: Read) -> list[WindowOutput]:
    best, confidences = read.best, read.confidences
    outputs = []
    row = target = 0
    for window in windows:
        end, target_end = row + window.logits, target + len(window.targets)
        argmax = tuple(best[row:end])
        drafts = [row + group.row + i for group in window.chosen(argmax) for i in range(group.count)]
        outputs.append(
            WindowOutput(
                argmax,
                tuple(confidences[row:end]),
                tuple(read.probabilities[target:target_end]),
                tuple([best[draft] for draft in drafts]),
                tuple([confidences[draft] for draft in drafts]),
            )
        )
        row, target = row + window.outputs, target_end
    return outputs
