"""Weights in the blocks that the compiled products read from front to back (`kernels/panels.h`)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional

from prove_core.model.apply import GatedLinear
from prove_core.model.native.interface import Weight, address
from prove_core.model.native.memory import Slabs

WIDE = 32  # columns of a block
LANES = 16


@dataclass(slots=True)
class Kept:
    """Tensors that compiled code points into: they must live as long as it runs."""

    tensors: list[Tensor] = field(default_factory=list)
    slabs: Slabs = field(default_factory=Slabs)

    def floats(self, values: Tensor | None) -> int | None:
        """The address of a float32 copy; None for None."""
        return None if values is None else self.keep(values.detach().float().contiguous())

    def blocks(self, weight: Tensor, width: int) -> int | None:
        """The address of a matrix in blocks of `width` outputs: see `in_blocks`."""
        return self.keep(self.slabs.copy(in_blocks(weight, width)))

    def keep(self, values: Tensor) -> int | None:
        """The address of contiguous `values`."""
        self.tensors.append(values)
        return address(values)

    def linear(self, module: nn.Linear | GatedLinear, sizes: Sequence[int], order: Tensor | None = None) -> Weight:
        """A (gated) Linear that joins products with `sizes` outputs each; `order`: its outputs', in whole blocks."""
        base = module.base if isinstance(module, GatedLinear) else module
        assert isinstance(base, nn.Linear)
        order = torch.arange(base.out_features) if order is None else order
        packed = Weight(
            blocks=self.blocks(base.weight.detach()[order], WIDE),
            bias=None if base.bias is None else self.floats(base.bias.detach()[order]),
            inputs=base.in_features,
            outputs=_rounded_up(len(order), WIDE),
        )
        if isinstance(module, GatedLinear):
            self._adapter(packed, module, sizes, order)
        return packed

    def _adapter(self, packed: Weight, module: GatedLinear, sizes: Sequence[int], order: Tensor) -> None:
        """Of a joint B, block-diagonal, only the blocks are kept."""
        a, b = module.lora_a.weight.detach(), module.lora_b.weight.detach()
        rank = len(a) // len(sizes)
        part_of = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        columns = part_of[:, None] * rank + torch.arange(rank)
        packed.a = self.blocks(a, LANES)
        packed.b = self.blocks(b.gather(1, columns)[order], WIDE)
        packed.parts = self.keep(part_of[order][::WIDE].int().contiguous())
        packed.rank, packed.part_rank, packed.scale = _rounded_up(len(a), LANES), rank, module.scale


def in_blocks(weight: Tensor, width: int) -> Tensor:
    """[outputs, inputs] as [blocks, inputs / 2, width, 2], outputs padded with zeros to whole blocks."""
    padded = functional.pad(weight, (0, 0, 0, -len(weight) % width))
    return padded.view(-1, width, weight.shape[1] // 2, 2).transpose(1, 2).contiguous()


def _rounded_up(size: int, step: int) -> int:
    return -(-size // step) * step


def side_by_side(size: int) -> Tensor:
    """The order of two halves of `size` outputs each in which their blocks alternate."""
    return torch.arange(2 * size).view(2, -1, WIDE).transpose(0, 1).flatten()


def halves_together(size: int, head_dim: int) -> Tensor:
    """The order of `size` outputs, whole heads, in which a block has as many of a head's first half as of its second.

    Each with those that rotary embeddings turn with them.
    """
    return torch.arange(size).view(-1, 2, head_dim // 2 // LANES, LANES).transpose(1, 2).flatten()
