"""flashinfer.activation."""

from collections.abc import Callable

import torch
from torch.nn import functional

from tests.flashinfer_reference.checks import check, check_16_bit


def silu_and_mul(input: torch.Tensor, out: torch.Tensor = None, enable_pdl: bool | None = None) -> torch.Tensor:  # type: ignore[assignment]
    return _and_mul(functional.silu, input, out)


def gelu_tanh_and_mul(input: torch.Tensor, out: torch.Tensor = None, enable_pdl: bool | None = None) -> torch.Tensor:  # type: ignore[assignment]
    return _and_mul(lambda x: functional.gelu(x, approximate="tanh"), input, out)


def gelu_and_mul(input: torch.Tensor, out: torch.Tensor = None, enable_pdl: bool | None = None) -> torch.Tensor:  # type: ignore[assignment]
    return _and_mul(functional.gelu, input, out)


def _and_mul(
    function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, out: torch.Tensor | None
) -> torch.Tensor:
    check(x.shape[-1] % 2 == 0, "the last dimension must be even")
    check(x.is_contiguous(), "input must be contiguous")
    check_16_bit(x.dtype, "input")
    left, right = x.float().chunk(2, -1)
    result = (function(left) * right).to(x.dtype)
    return result if out is None else out.copy_(result)
