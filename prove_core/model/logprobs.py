"""Log-probabilities of what token rows choose, for requests that want to see them."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from prove_core.model.sampled import sampled_windows
from prove_core.model.window import Window, WindowOutput
from prove_core.types import Logprobs, TokenIds, TokenLogprob


def with_logprobs(outputs: list[WindowOutput], logits: torch.Tensor, windows: Sequence[Window]) -> list[WindowOutput]:
    """`outputs` with the log-probabilities that their windows ask for.

    `logits` [rows, vocabulary], of all windows' rows in order, are float32 and masked.
    """
    asked = {
        id(window): (slice(first, first + window.logits), params.logprobs)
        for window, params, first in sampled_windows(windows)
        if params.logprobs is not None
    }
    if not asked:
        return outputs
    return [
        replace(output, logprobs=_logprobs(logits, output.argmax, *asked[id(window)]))
        if id(window) in asked
        else output
        for window, output in zip(windows, outputs, strict=True)
    ]


def _logprobs(logits: torch.Tensor, choices: TokenIds, rows: slice, count: int) -> Logprobs:
    scores = torch.log_softmax(logits[rows], -1)
    chosen = scores.gather(1, torch.tensor(choices, device=logits.device)[:, None])[:, 0].tolist()
    values, ids = scores.topk(min(count, scores.shape[1]), dim=-1)
    return tuple(
        TokenLogprob(
            logprob, tuple((token, value) for token, value in zip(tokens, row, strict=True) if value > -torch.inf)
        )
        for logprob, tokens, row in zip(chosen, ids.tolist(), values.tolist(), strict=True)
    )
