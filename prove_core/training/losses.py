"""Cross-entropy through the head in chunks: the logits of a batch never exist at once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Weigh = Callable[[Tensor], Tensor]
"""[blocks, W] probabilities of the targets -> [blocks, W] weights of their losses (no gradient flows through them)."""


@dataclass(frozen=True, slots=True)
class HeadLoss:
    """`loss` (scalar, differentiable); per row [blocks, W], detached: nll in nats, is its argmax the target."""

    loss: Tensor
    nll: Tensor
    match: Tensor


@dataclass(frozen=True, slots=True)
class Teacher:
    """A share `kl` of each target is the distribution of the head over `hidden` ([blocks, W, H], no gradient)."""

    hidden: Tensor
    kl: float


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
        fixed = self.decay ** torch.arange(width, dtype=torch.float32, device=probabilities.device)
        if self.reach == 0.0:
            return fixed.expand_as(probabilities)
        prefix = probabilities.cumprod(-1)
        gain = prefix.flip(-1).cumsum(-1).flip(-1)
        return (1.0 - self.reach) * fixed + self.reach * gain


def evenly(probabilities: Tensor) -> Tensor:
    """Every row counts the same."""
    return torch.ones_like(probabilities)


class _ChunkedHeadLoss(torch.autograd.Function):
    """The gradients with respect to hidden rows and head are formed while the logits are at hand."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, weigh: Weigh, teacher: Teacher | None, chunk: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        blocks, width, _ = hidden.shape
        gradient = torch.empty_like(hidden)
        head_gradient = torch.zeros_like(head, dtype=torch.float32) if ctx.needs_input_grad[1] else None
        nll, weighed = hidden.new_empty(2, blocks, width, dtype=torch.float32)
        match = torch.empty_like(nll, dtype=torch.bool)
        for start in range(0, blocks, chunk):
            part = slice(start, start + chunk)
            rows, ids = hidden[part].flatten(0, 1), targets[part].flatten()[:, None]
            logits = functional.linear(rows, head).float()
            total = logits.logsumexp(1, keepdim=True)
            target = logits.gather(1, ids.clamp(min=0))
            loss = total - target
            nll[part] = loss.view(-1, width)
            match[part] = (logits.amax(1, keepdim=True) <= target).view(-1, width)
            known = (ids >= 0).view(-1, width)
            weights = weigh(torch.where(known, (-nll[part]).exp(), 0.0)) * known
            share = 1.0 if teacher is None else 1.0 - teacher.kl
            wanted = None
            if teacher is not None:
                wanted = torch.softmax(functional.linear(teacher.hidden[part].flatten(0, 1), head).float(), 1)
                soft = total - (wanted * logits).sum(1, keepdim=True)
                loss = share * loss + teacher.kl * soft
            weighed[part] = weights * loss.view(-1, width)
            errors = logits.sub_(total).exp_()
            errors.scatter_add_(1, ids.clamp(min=0), torch.full_like(target, -share))
            if wanted is not None and teacher is not None:
                errors.sub_(wanted, alpha=teacher.kl)
            errors = errors.mul_(weights.reshape(-1, 1)).to(head.dtype)
            gradient[part] = (errors @ head).view(-1, *hidden.shape[1:])
            if head_gradient is not None:
                head_gradient += errors.t() @ rows
        ctx.save_for_backward(gradient, head_gradient)
        ctx.head_dtype = head.dtype
        ctx.mark_non_differentiable(nll, match)
        return weighed.sum(), nll, match

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gradient, head_gradient = ctx.saved_tensors
        to_head = None if head_gradient is None else (head_gradient * grads[0]).to(ctx.head_dtype)
        return gradient * grads[0].to(gradient.dtype), to_head, None, None, None, None


def head_loss(
    hidden: Tensor, head: Tensor, targets: Tensor, weigh: Weigh, *, teacher: Teacher | None = None, chunk: int = 16
) -> HeadLoss:
    """Weighted sum of -log p(target) over [blocks, W, hidden] rows, divided by the number of known targets.

    head is [vocabulary, hidden]; targets below 0 do not count. `chunk` blocks at a time.
    """
    total, nll, match = _ChunkedHeadLoss.apply(  # type: ignore[no-untyped-call]
        hidden, head, targets, weigh, teacher, chunk
    )
    count = (targets >= 0).sum().clamp(min=1)
    return HeadLoss(total / count, nll, match & (targets >= 0))
