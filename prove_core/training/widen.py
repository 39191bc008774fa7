"""A recurrent sequential head made wider without changing what it computes."""

from collections.abc import Mapping

import torch
from torch import Tensor


def widened(head: Mapping[str, Tensor], times: int, generator: torch.Generator) -> dict[str, Tensor]:
    """The tensors of `model.sequential.SequentialHead` with every unit of the state `times` over; exact up to rounding.

    A state repeated has the mean and variance that it had, so its norm is repeated too. Whatever reads a unit divides
    its weight among the copies, in random shares: so they get different gradients and grow apart.
    """

    def share(weight: Tensor) -> Tensor:
        shares = torch.rand(times, *weight.shape, generator=generator) + 0.2
        return torch.cat(tuple(weight * (shares / shares.sum(0)).to(weight)), dim=1)

    return {
        "a": head["a"].repeat(times, 1),
        "b": head["b"].repeat(times, 1),
        "position": head["position"].repeat(1, times),
        "o": share(head["o"].float()),
        "r": torch.cat([share(head["r"].float()) for _ in range(times)]),
    }
