"""Low-rank adapters on frozen linear layers, and the switch that gated training turns off for clean rows."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(slots=True)
class Gate:
    """Shared by all adapters of a model: closed, the model is the stock one bit for bit."""

    open: bool = False

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Adapters act inside this block."""
        before, self.open = self.open, True
        try:
            yield
        finally:
            self.open = before


class LoraLinear(nn.Module):
    """y = W x + b, and with the gate open + scale * B (A x). A [rank, in] and B [out, rank] are float32, W frozen."""

    def __init__(self, linear: nn.Linear, rank: int, scale: float, gate: Gate, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter(linear.weight.detach(), requires_grad=False)
        self.bias = None if linear.bias is None else nn.Parameter(linear.bias.detach(), requires_grad=False)
        bound = 1.0 / math.sqrt(linear.in_features)
        a = torch.empty(rank, linear.in_features).uniform_(-bound, bound, generator=generator)
        self.lora_a = nn.Parameter(a.to(linear.weight.device))
        self.lora_b = nn.Parameter(torch.zeros(linear.out_features, rank, device=linear.weight.device))
        self._scale = scale
        self._gate = gate

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out] in x's dtype."""
        y = functional.linear(x, self.weight, self.bias)
        if not self._gate.open:
            return y
        thin = functional.linear(x.flatten(0, -2), self.lora_a.to(x.dtype))
        return torch.addmm(y.flatten(0, -2), thin, self.lora_b.to(x.dtype).t(), alpha=self._scale).view(y.shape)


def attach(
    decoder: nn.Module, rank: int, scale: float, gate: Gate, generator: torch.Generator
) -> dict[str, LoraLinear]:
    """Replace every linear layer below `decoder` by a LoraLinear; answers them by their dotted path."""
    found = [(name, module) for name, module in decoder.named_modules() if isinstance(module, nn.Linear)]
    adapters = {}
    for name, module in found:
        adapter = LoraLinear(module, rank, scale, gate, generator)
        parent, _, leaf = name.rpartition(".")
        setattr(decoder.get_submodule(parent), leaf, adapter)
        adapters[name] = adapter
    return adapters
