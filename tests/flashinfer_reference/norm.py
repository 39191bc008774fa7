"""flashinfer.norm."""

import torch

from tests.flashinfer_reference.checks import check, check_16_bit


def rmsnorm(
    input: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
    enable_pdl: bool | None = None,
) -> torch.Tensor:
    return _normed(input, weight.float(), weight, eps, out)


def gemma_rmsnorm(
    input: torch.Tensor,
    weight: torch.Tensor,
    eps: float = 1e-6,
    out: torch.Tensor | None = None,
    enable_pdl: bool | None = None,
) -> torch.Tensor:
    return _normed(input, 1 + weight.float(), weight, eps, out)


def _normed(
    x: torch.Tensor, factor: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor | None
) -> torch.Tensor:
    check(x.ndim in (2, 3) and x.stride(-1) == 1, "input must be [rows, hidden] or [rows, heads, hidden]")
    check(weight.shape == x.shape[-1:], "weight must be [hidden]")
    check(weight.dtype is x.dtype, "weight must have the input's dtype")
    check_16_bit(x.dtype, "input")
    wide = x.float()
    result = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * factor).to(x.dtype)
    return result if out is None else out.copy_(result)
