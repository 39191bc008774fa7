"""Block cross-entropy through a frozen head, in chunks: the logits of a batch never exist at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Weigh = Callable[[Tensor], Tensor]
"""[blocks, W] probabilities of the targets -> [blocks, W] weights of their losses (no gradient flows through them)."""


@dataclass(frozen=True, slots=True)
class BlockLoss:
    """`loss` (scalar, differentiable); per placeholder [blocks, W], detached: nll in nats, is its argmax the target."""

    loss: Tensor
    nll: Tensor
    match: Tensor


@dataclass(frozen=True, slots=True)
class PositionWeights:
    """Weight of placeholder i: `decay ** (i - 1)`, mixed with how much it can still add to the matching prefix.

    The expected prefix is 1 + sum_i prod_{j<=i} p_j. Its gradient weighs log p_j with sum_{i>=j} prod_{k<=i} p_k: a
    placeholder behind one that will not match, or one that cannot match itself, counts little. `reach` in 0..1 is the
    share of that term.
    """

    decay: float
    reach: float

    def __call__(self, probabilities: Tensor) -> Tensor:
        width = probabilities.shape[-1]
        fixed = self.decay ** torch.arange(width, dtype=torch.float32)
        if self.reach == 0.0:
            return fixed.expand_as(probabilities)
        prefix = probabilities.cumprod(-1)
        gain = prefix.flip(-1).cumsum(-1).flip(-1)
        return (1.0 - self.reach) * fixed + self.reach * gain


class _FrozenHeadLoss(torch.autograd.Function):
    """The gradient with respect to the hidden rows is formed while the logits are at hand."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, weigh: Weigh, chunk: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        blocks, width, _ = hidden.shape
        gradient = torch.empty_like(hidden)
        nll = torch.empty(blocks, width)
        match = torch.empty(blocks, width, dtype=torch.bool)
        weights = torch.empty(blocks, width)
        for start in range(0, blocks, chunk):
            part = slice(start, start + chunk)
            ids = targets[part].flatten()[:, None]
            scores = torch.softmax(functional.linear(hidden[part].flatten(0, 1), head).float(), -1)
            target = scores.gather(1, ids.clamp(min=0))
            match[part] = (scores.amax(1, keepdim=True) <= target).view(-1, width)
            nll[part] = -target.clamp_min(1e-12).log().view(-1, width)
            known = (ids >= 0).view(-1, width)
            weights[part] = weigh(torch.where(known, target.view(-1, width), 0.0)) * known
            scale = weights[part].reshape(-1, 1)
            scores.scatter_add_(1, ids.clamp(min=0), torch.full_like(target, -1.0)).mul_(scale)
            gradient[part] = (scores.to(head.dtype) @ head).view(-1, *hidden.shape[1:])
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(nll, match)
        return (nll * weights).sum(), nll, match

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient * grads[0].to(gradient.dtype), None, None, None, None


def block_loss(hidden: Tensor, head: Tensor, targets: Tensor, weigh: Weigh, *, chunk: int = 16) -> BlockLoss:
    """Weighted sum of -log p(target) over [blocks, W, hidden] rows, divided by the number of known targets.

    head is [vocabulary, hidden] and gets no gradient; targets below 0 do not count. `chunk` blocks at a time.
    """
    total, nll, match = _FrozenHeadLoss.apply(  # type: ignore[no-untyped-call]
        hidden, head, targets, weigh, chunk
    )
    count = (targets >= 0).sum().clamp(min=1)
    return BlockLoss(total / count, nll, match & (targets >= 0))
