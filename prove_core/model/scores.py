"""Logits into what leaves a runner: argmax ids, their probabilities, and probabilities of given ids."""

from collections.abc import Sequence

import torch

from prove_core.model.window import Window, WindowOutput


class Scorer:
    """Bans ids, then reads argmax and probabilities off a float32 softmax. `banned` beyond `vocabulary` is dropped."""

    def __init__(self, banned: torch.Tensor | Sequence[int], *, vocabulary: int, device: torch.device) -> None:
        ids = torch.as_tensor(banned, dtype=torch.int64).flatten()
        self._banned = ids[ids < vocabulary].to(device)

    def mask(self, logits: torch.Tensor, windows: Sequence[Window]) -> torch.Tensor:
        """The logits rows of all windows, in order, in float32 and with ids that must not be chosen at -inf.

        `logits` is `[rows, vocabulary]` and may be overwritten; rows beyond those of the windows are ignored.
        """
        logits = logits[: sum(window.logits for window in windows)].float()
        logits.index_fill_(1, self._banned, -torch.inf)
        _apply_floors(logits, windows)
        return logits

    def score(self, logits: torch.Tensor, windows: Sequence[Window]) -> list[WindowOutput]:
        """One output per window for masked `logits`."""
        if not len(logits):
            return [WindowOutput((), (), ()) for _ in windows]
        best = logits.argmax(-1)
        # row by row and in one thread each, unlike logsumexp: a row's bits don't depend on how many there are
        probabilities = torch.softmax(logits, -1)
        confidence = probabilities.gather(1, best[:, None])[:, 0].tolist()
        return _split(windows, best.tolist(), confidence, _targets(probabilities, windows))


def _apply_floors(logits: torch.Tensor, windows: Sequence[Window]) -> None:
    rows: list[int] = []
    stops: list[int] = []
    first = 0
    for window in windows:
        if window.floor is not None:
            # the i-th logits row predicts the token at index length - logits + 1 + i
            early = window.floor.length - (window.length - window.logits + 1)
            for row in range(first, first + min(early, window.logits)):
                rows.extend([row] * len(window.floor.stop_ids))
                stops.extend(window.floor.stop_ids)
        first += window.logits
    if rows:
        logits[torch.tensor(rows), torch.tensor(stops)] = -torch.inf


def _targets(probabilities: torch.Tensor, windows: Sequence[Window]) -> list[float]:
    """Probability of every window's every target, one flat list."""
    width = probabilities.shape[1]
    index: list[int] = []
    first = 0
    for window in windows:
        index.extend((first + i) * width + target for i, target in enumerate(window.targets))
        first += window.logits
    if not index:
        return []
    chosen = probabilities.view(-1).index_select(0, torch.tensor(index, device=probabilities.device))
    values: list[float] = chosen.tolist()
    return values


def _split(
    windows: Sequence[Window], best: list[int], confidence: list[float], targets: list[float]
) -> list[WindowOutput]:
    outputs = []
    row = target = 0
    for window in windows:
        end, target_end = row + window.logits, target + len(window.targets)
        outputs.append(
            WindowOutput(tuple(best[row:end]), tuple(confidence[row:end]), tuple(targets[target:target_end]))
        )
        row, target = end, target_end
    return outputs
