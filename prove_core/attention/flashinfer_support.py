"""Whether FlashInfer's kernels can serve a model on this machine."""

import importlib
from collections.abc import Sequence
from typing import Any

import torch

from prove_core.attention.base import LayerSpec

HEAD_DIMS = (64, 128, 256)  # what the fa2 kernels are laid out for
DTYPES = (torch.float16, torch.bfloat16)
CAPABILITY = (8, 0)


def import_flashinfer() -> Any:
    """The package. Raises ImportError where it (or something that it needs) is not installed."""
    for part in ("norm", "activation", "sampling"):
        importlib.import_module(f"flashinfer.{part}")
    return importlib.import_module("flashinfer")


def unsupported(
    specs: Sequence[LayerSpec], dtype: torch.dtype, capability: tuple[int, int], device: str = "this card"
) -> str | None:
    """Why FlashInfer cannot serve these layers, in one clause; None if it can.

    `capability` is that of the CUDA device.
    """
    if capability < CAPABILITY:
        have, need = (".".join(map(str, version)) for version in (capability, CAPABILITY))
        return f"{device} has compute capability {have}, and its kernels need {need}"
    if dtype not in DTYPES:
        names = " or ".join(str(each).removeprefix("torch.") for each in DTYPES)
        return f"its kernels take {names}, not {str(dtype).removeprefix('torch.')}"
    for spec in specs:
        if spec.head_dim != spec.value_dim:
            return f"layer {spec.index} has keys of {spec.head_dim} and values of {spec.value_dim} dimensions"
        if spec.head_dim not in HEAD_DIMS:
            sizes = ", ".join(map(str, HEAD_DIMS))
            return f"its kernels take head sizes {sizes}, not {spec.head_dim} (layer {spec.index})"
        if spec.query_heads % spec.kv_heads:
            return f"layer {spec.index} shares {spec.kv_heads} KV heads unevenly among {spec.query_heads} heads"
    return None
