"""LoRA matrices at a lower rank: of every product B A, its largest singular values."""

from collections.abc import Mapping

import torch
from torch import Tensor

A, B = "lora_A.weight", "lora_B.weight"


def truncate(tensors: Mapping[str, Tensor], rank: int) -> dict[str, Tensor]:
    """`tensors` by their saved names, with no LoRA pair of a higher rank than `rank`; all others are what they were."""
    changed = dict(tensors)
    for name in tensors:
        partner = name.removesuffix(A) + B
        if name.endswith(A) and partner in tensors and len(tensors[name]) > rank:
            changed[name], changed[partner] = truncated(tensors[name], tensors[partner], rank)
    return changed


def truncated(a: Tensor, b: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """A [r, in] and B [out, r] whose product is the nearest to `b` `a` of rank `rank` (Eckart-Young), float32.

    r = min(rank, in, out, len(a)). Row i of A is as long as column i of B: what one learning rate for both suits.
    """
    left, core = torch.linalg.qr(b.double())
    right, across = torch.linalg.qr(a.double().T)
    u, values, v = torch.linalg.svd(core @ across.T)  # of the small core: left and right are orthonormal
    kept = min(rank, len(values))
    root = values[:kept].sqrt()
    return (root[:, None] * (v[:kept] @ right.T)).float(), ((left @ u[:, :kept]) * root).float()
