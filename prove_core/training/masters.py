"""Float32 copies of what is trained: weights in bf16 are too coarse to add a step's small change to."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn


class Masters:
    """The optimizer's parameters. Float32 ones are the model's own; others are copies that it follows."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._model = dict(parameters)
        self.parameters: dict[str, Tensor] = {
            name: p if p.dtype == torch.float32 else p.detach().float() for name, p in self._model.items()
        }

    def collect(self) -> None:
        """Add the model's gradients to the masters', and clear them."""
        for master, parameter in self._copies():
            if parameter.grad is not None:
                gradient = parameter.grad.float()
                master.grad = gradient if master.grad is None else master.grad + gradient
                parameter.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Give the model the masters' values."""
        for master, parameter in self._copies():
            parameter.copy_(master)

    def _copies(self) -> Iterator[tuple[Tensor, nn.Parameter]]:
        for name, parameter in self._model.items():
            if self.parameters[name] is not parameter:
                yield self.parameters[name], parameter
