"""Logits into what leaves a runner: chosen ids, their probabilities, and probabilities of given ids."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch

from prove_core.model.logprobs import with_logprobs
from prove_core.model.sampled import adjust_token_rows, draw_token_rows
from prove_core.model.window import Window, WindowOutput


class Rows(Protocol):
    """What rows of masked logits say. A row's values have the same bits however many rows there are."""

    best: torch.Tensor
    """The likeliest id of each row, int64 `[rows]`."""

    def probabilities(self, rows: torch.Tensor | None, ids: torch.Tensor) -> list[float]:
        """Of `ids[i]` at row `rows[i]`, both int64 `[n]`: a float32 softmax. No `rows`: all of them, in order."""
        ...


class TorchRows:
    """Implements `Rows` by whole rows of probabilities."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.best = logits.argmax(-1)
        # row by row and in one thread each, unlike logsumexp
        self._probabilities = torch.softmax(logits, -1)

    def probabilities(self, rows: torch.Tensor | None, ids: torch.Tensor) -> list[float]:
        """See `Rows.probabilities`."""
        rows = torch.arange(len(ids), device=ids.device) if rows is None else rows
        index = rows * self._probabilities.shape[1] + ids
        values: list[float] = self._probabilities.view(-1).index_select(0, index).tolist()
        return values


class Scorer:
    """Bans ids, then reads choices and probabilities off a float32 softmax. `banned` beyond `vocabulary` is dropped."""

    def __init__(
        self,
        banned: torch.Tensor | Sequence[int],
        *,
        vocabulary: int,
        device: torch.device,
        read: Callable[[torch.Tensor], Rows] = TorchRows,
    ) -> None:
        self._read = read
        ids = torch.as_tensor(banned, dtype=torch.int64).flatten()
        self._banned = ids[ids < vocabulary].to(device)

    def mask(self, logits: torch.Tensor, windows: Sequence[Window]) -> torch.Tensor:
        """The logits rows of all windows, in order, in float32 and with ids that must not be chosen at -inf.

        Token rows are adjusted as their sampling asks; placeholders' have to wait for the choices before them.
        `logits` is `[rows, vocabulary]` and may be overwritten; rows beyond those of the windows are ignored.
        """
        count = sum(window.outputs for window in windows)
        if len(logits) != count or logits.dtype is not torch.float32:
            logits = logits[:count].float()
        if len(self._banned):
            logits.index_fill_(1, self._banned, -torch.inf)
        adjust_token_rows(logits, windows)
        _apply_floors(logits, windows)
        return logits

    def score(self, logits: torch.Tensor, windows: Sequence[Window]) -> list[WindowOutput]:
        """One output per window for masked `logits`."""
        if not len(logits):
            return [WindowOutput((), (), ()) for _ in windows]
        read = self._read(logits)
        best = read.best
        draw_token_rows(best, logits, windows)
        confidence = read.probabilities(None, best)
        where, targets = _targets(windows)
        probabilities = read.probabilities(*_ids((where, targets), best.device)) if where else []
        outputs = _split(windows, best.tolist(), confidence, probabilities)
        return with_logprobs(outputs, logits, best, windows)


def _apply_floors(logits: torch.Tensor, windows: Sequence[Window]) -> None:
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
    first = 0
    for window in windows:
        rows.extend(range(first, first + len(window.targets)))
        first += window.outputs
    return rows, [target for window in windows for target in window.targets]


def _ids(lists: Sequence[list[int]], device: torch.device) -> Iterator[torch.Tensor]:
    return (torch.tensor(values, dtype=torch.int64, device=device) for values in lists)


def _split(
    windows: Sequence[Window], best: list[int], confidence: list[float], targets: list[float]
) -> list[WindowOutput]:
    outputs = []
    row = target = 0
    for window in windows:
        end, target_end = row + window.logits, target + len(window.targets)
        argmax = tuple(best[row:end])
        groups = window.chosen(argmax)
        drafts = [row + group.row + i for group in groups for i in range(group.count)]
        outputs.append(
            WindowOutput(
                argmax,
                tuple(confidence[row:end]),
                tuple(targets[target:target_end]),
                tuple(best[draft] for draft in drafts),
                tuple(confidence[draft] for draft in drafts),
            )
        )
        row, target = row + window.outputs, target_end
    return outputs
