"""The token rows of windows that do not simply take the argmax: adjusted by penalties and biases, and drawn."""

from collections.abc import Iterator, Sequence

import torch

from prove_core.model.draw import Ask, draw
from prove_core.model.noise import all_scattered
from prove_core.model.penalties import NOTHING, Occurrences, adjust
from prove_core.model.window import Window
from prove_core.types import SamplingParams


def adjust_token_rows(logits: torch.Tensor, windows: Sequence[Window]) -> None:
    """Change `logits` `[rows, vocabulary]`, the outputs' rows of all windows in order, in place."""
    for window, params, first in sampled_windows(windows):
        if not params.adjusts:
            continue
        row_tokens = window.tokens[len(window.tokens) - window.logits + 1 :]
        seen = occurrences(window, params, window.end - window.logits + 1)
        adjust(logits[first], params, seen)
        for row, token in enumerate(row_tokens, start=first + 1):
            seen = seen.then(token) if params.penalizes else seen
            adjust(logits[row], params, seen)


def drawn_token_rows(logits: torch.Tensor, windows: Sequence[Window]) -> dict[int, int]:
    """What is drawn from masked `logits` where a window draws its tokens: ids by row."""
    rows: list[int] = []
    asks: list[Ask] = []
    for window, params, first in sampled_windows(windows):
        if params.draws:
            rows.extend(range(first, first + window.logits))
            asks.extend((params, index) for index in range(window.end - window.logits + 1, window.end + 1))
    if not rows:
        return {}
    where = torch.tensor(rows, device=logits.device)
    drawn = draw(logits[where], asks, all_scattered(logits.shape[1], logits.device))
    return dict(zip(rows, drawn.tolist(), strict=True))


def occurrences(window: Window, params: SamplingParams, count: int) -> Occurrences:
    """Those of the first `count` tokens of the window's sequence; nothing where no penalty asks for them."""
    if not params.penalizes:
        return NOTHING
    return Occurrences.of((*window.before, *window.tokens)[:count], params.prompt_length)


def sampled_windows(windows: Sequence[Window]) -> Iterator[tuple[Window, SamplingParams, int]]:
    """Windows with rows that want an output and a sampling of their own, and the first of these rows."""
    first = 0
    for window in windows:
        if window.sampling is not None and window.logits:
            yield window, window.sampling, first
        first += window.outputs
