"""flashinfer.sampling."""

import torch

from tests.flashinfer_reference.checks import check


def softmax(
    logits: torch.Tensor,
    temperature: torch.Tensor | float | None = None,
    enable_pdl: bool | None = None,
) -> torch.Tensor:
    check(logits.ndim == 2 and logits.is_contiguous(), "logits must be [rows, vocabulary], contiguous")
    scale = 1.0 if temperature is None else temperature
    if isinstance(scale, torch.Tensor):
        check(scale.shape == logits.shape[:1], "one temperature per row")
        scale = scale[:, None]
    return torch.softmax(logits.float() / scale, -1)
