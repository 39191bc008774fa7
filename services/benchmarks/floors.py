"""The least time a forward pass can take: its weights and KV are read once, its products are computed once.

Both limits of the machine are measured on the spot. They bind where the weights are larger than the caches.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from prove_core.attention.base import LayerSpec
from prove_core.model.apply import GatedLinear

_BUFFER = 1 << 28  # float32 values: 1 GiB, beyond the caches of any machine
_SIDES = (1024, 2048)
_TRIES = 5


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Bytes read and floating-point operations, per second."""

    bandwidth: float
    flops: float


@dataclass(frozen=True, slots=True)
class PassSize:
    """One window's pass: all its rows want logits. `context` tokens of KV lie before it."""

    rows: int
    placeholders: int
    context: int


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Weights by who multiplies with them: every row, rows that want logits, placeholder rows. `width` in bytes.

    Of a mixture of experts all experts count: its passes may then be faster than the floor.
    """

    body: int
    head: int
    adapter: int
    width: int
    layers: tuple[LayerSpec, ...]

    def bytes_read(self, size: PassSize) -> int:
        """By one pass: the weights it takes, and K and V of the context."""
        weights = self.body + self.head + (self.adapter if size.placeholders else 0)
        kv = sum(spec.kv_heads * (spec.head_dim + spec.value_dim) * _seen(spec, size.context) for spec in self.layers)
        return (weights + kv) * self.width

    def flops(self, size: PassSize) -> int:
        """Of one pass: two for each weight and row, and for each pair of a query's and a key's or value's number."""
        weights = (self.body + self.head) * size.rows + self.adapter * size.placeholders
        pairs = sum(
            spec.query_heads * (spec.head_dim + spec.value_dim) * _seen(spec, size.context) for spec in self.layers
        )
        return 2 * (weights + pairs * size.rows)

    def floor(self, limits: MachineLimits, size: PassSize) -> float:
        """Seconds that one pass takes at least."""
        return max(self.bytes_read(size) / limits.bandwidth, self.flops(size) / limits.flops)


def _seen(spec: LayerSpec, context: int) -> int:
    return context if spec.window is None else min(context, spec.window)


def model_size(model: PreTrainedModel, specs: Sequence[LayerSpec]) -> ModelSize:
    """Counts the matrices of a model as it was loaded. Tables that rows are merely looked up in count nothing."""
    gated = [module for module in model.modules() if isinstance(module, GatedLinear)]
    adapter = {id(part.weight): part.weight.numel() for module in gated for part in (module.lora_a, module.lora_b)}
    head = model.get_output_embeddings().weight
    tables = (nn.Embedding, nn.EmbeddingBag)
    body = {
        id(weight): weight.numel()
        for module in model.modules()
        if not isinstance(module, tables)
        for weight in module.parameters(recurse=False)
        if weight.dim() > 1 and weight is not head and id(weight) not in adapter
    }
    return ModelSize(
        body=sum(body.values()),
        head=head.numel(),
        adapter=sum(adapter.values()),
        width=head.element_size(),
        layers=tuple(specs),
    )


def measure_limits(device: torch.device, dtype: torch.dtype) -> MachineLimits:
    """By torch with its threads as they are: the best of two ways to read a buffer, and of products in `dtype`."""
    with torch.inference_mode():
        return MachineLimits(_bandwidth(device), max(_flops(side, device, dtype) for side in _SIDES))


def _bandwidth(device: torch.device) -> float:
    matrix = torch.ones(1 << 14, _BUFFER >> 14, device=device)
    vector = torch.ones(_BUFFER >> 14, device=device)
    return matrix.nbytes / min(shortest(matrix.sum, device), shortest(lambda: matrix @ vector, device))


def _flops(side: int, device: torch.device, dtype: torch.dtype) -> float:
    square = torch.ones(side, side, dtype=dtype, device=device)
    return float(2 * side**3 / shortest(lambda: square @ square, device))


def shortest(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the fastest of several runs, after one that warms up."""
    seconds(work, device)
    return min(seconds(work, device) for _ in range(_TRIES))


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Seconds that `work` takes, to the end of what it has started on the device."""
    _synchronize(device)
    begin = time.perf_counter()
    work()
    _synchronize(device)
    return time.perf_counter() - begin


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
