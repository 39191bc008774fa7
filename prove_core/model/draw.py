"""Draws from rows of logits under temperature, top_k, top_p and min_p.

An id is drawn as the winner of a race: id x, of probability p(x), arrives after E(x) / p(x) with E(x) standard
exponential, and the first one has distribution p. The noise E depends on seed, index and id alone (see `noise`), so a
proposer that races with the same noise over its own q draws the same id as the verifying model would, as often as p
and q agree. Verification then is as for argmax: a draft stands while it equals the verifying model's own draw. What is
committed is always that draw, so its distribution is the verifying model's, exactly, whatever was proposed, and the
same seed gives the same tokens in every exact mode. (Gumbel coupling: Daliri, Musco, Suresh, "Coupling without
communication and drafter-invariant speculative decoding", arXiv 2408.07978.)
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from prove_core.model.noise import log_noise, row_key
from prove_core.types import SamplingParams

LEADING = (512, 8192)  # candidates looked at before a whole row is sorted: a nucleus is seldom larger
_CHUNK = 1 << 16  # numbers that a CPU works on at once: what fits its cache takes a fifth of the time

Ask = tuple[SamplingParams, int]


def draw(logits: Tensor, asks: Sequence[Ask], scattered: Tensor) -> Tensor:
    """The column drawn from each row of adjusted `logits` (float32 `[rows, n]`, -inf where banned); int64 `[rows]`.

    `asks[i]` is how row i is drawn and the index of the token that it predicts. `scattered` are the columns' ids, as
    `noise.scatter` has them, `[n]` or `[rows, n]`. A row's result depends on that row alone.
    """
    step = len(asks) if logits.is_cuda else max(1, _CHUNK // logits.shape[1])
    chunks = [slice(first, first + step) for first in range(0, len(asks), step)]
    own = scattered.expand(len(asks), -1)
    return torch.cat([_draw(logits[rows], asks[rows], own[rows]) for rows in chunks])


def _draw(logits: Tensor, asks: Sequence[Ask], scattered: Tensor) -> Tensor:
    scaled = scale(logits, asks)
    keys = torch.tensor([row_key(params.seed, index) for params, index in asks], dtype=torch.int32)
    lead = scaled - log_noise(scattered, keys.to(logits.device))
    return lead.masked_fill_(scaled < least(scaled, asks), -torch.inf).argmax(-1)


def scale(logits: Tensor, asks: Sequence[Ask]) -> Tensor:
    """Logits over their temperatures, each row less its maximum."""
    temperature = _column([params.temperature for params, _ in asks], logits.device)
    return (logits - logits.amax(-1, keepdim=True)) / temperature


def least(scaled: Tensor, asks: Sequence[Ask]) -> Tensor:
    """The smallest value of each row of `scaled` that top_k, top_p and min_p leave, `[rows, 1]`; ties stay."""
    count, device = scaled.shape[-1], scaled.device
    lowest = _column([params.min_p for params, _ in asks], device).log()
    top_k = [params.top_k if 0 < params.top_k < count else count for params, _ in asks]
    top_p = [params.top_p for params, _ in asks]
    narrowed = [row for row, (k, p) in enumerate(zip(top_k, top_p, strict=True)) if k < count or p < 1]
    for width in (*(width for width in LEADING if width < count), count):
        if not narrowed:
            break
        few = torch.tensor([top_k[row] for row in narrowed], device=device)[:, None]
        share = _column([top_p[row] for row in narrowed], device)
        cut, found = _cut(scaled[narrowed], few, share, width)
        lowest[narrowed] = torch.maximum(lowest[narrowed], cut)
        narrowed = [row for row, done in zip(narrowed, found, strict=True) if not done]
    return lowest


def _cut(scaled: Tensor, top_k: Tensor, top_p: Tensor, width: int) -> tuple[Tensor, list[bool]]:
    """The least value that top_k and then top_p leave, judged by each row's `width` best, and whether they suffice.

    Where they do not, nothing is cut.
    """
    count = scaled.shape[-1]
    head = scaled.topk(width).values
    kth = head.gather(1, top_k.clamp(max=width) - 1)
    kth = torch.where((top_k <= width) & (top_k < count), kth, -torch.inf)
    kept = scaled.masked_fill(scaled < kth, -torch.inf) if bool((top_k < count).any()) else scaled
    # softmax works row by row: no sum whose order depends on how many rows there are
    best = torch.softmax(kept, -1).amax(-1, keepdim=True)
    shares = head.exp().masked_fill(head < kth, 0.0) * best
    before = shares.cumsum(-1) - shares
    nucleus = head.gather(1, ((before < top_p) & (head >= kth)).sum(-1, keepdim=True) - 1)
    cut = torch.where(top_p < 1, nucleus, kth)
    whole = (top_k <= width) | ((top_k >= count) & (before[:, -1:] >= top_p))
    return torch.where(whole | (width == count), cut, -torch.inf), whole[:, 0].tolist()


def _column(values: Sequence[float], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device)[:, None]
