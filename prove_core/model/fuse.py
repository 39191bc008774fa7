"""Projections of the same input in one product: fewer, larger products, and fewer steps between them.

A decode pass is bound by reading weights, but each small product also costs its start. Layers that call `q_proj`,
`k_proj` and `v_proj` (or `gate_proj` and `up_proj`) on one input get modules in their place that compute all of them at
the first call. It works for every model whose layers have modules of these names, and changes no model code.
"""

from collections.abc import Sequence

import torch
from torch import nn
from transformers import PreTrainedModel

from prove_core.model.apply import GatedLinear

_TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class _Shared:
    """The joint product of some projections, of the input seen last. `taken` counts the parts that have their share."""

    def __init__(self, joint: nn.Module, sizes: Sequence[int]) -> None:
        self._joint = joint
        self.sizes = list(sizes)
        self._input: torch.Tensor | None = None
        self._outputs: tuple[torch.Tensor, ...] = ()
        self._left: set[int] = set()

    def take(self, x: torch.Tensor, part: int) -> torch.Tensor:
        """`x` through projection number `part`."""
        if x is not self._input or part not in self._left:
            self._input = x
            self._outputs = torch.split(self._joint(x), self.sizes, dim=-1)
            self._left = set(range(len(self.sizes)))
        output = self._outputs[part]
        self._left.remove(part)
        if not self._left:  # hold no activation longer than needed
            self._input, self._outputs = None, ()
        return output


class FusedPart(nn.Module):
    """One of the projections. `joint` is a submodule of the first of them alone, so that each weight is found once."""

    def __init__(self, shared: _Shared, part: int, weight: torch.Tensor, joint: nn.Module | None) -> None:
        super().__init__()
        self._shared = shared
        self._part = part
        self.weight = weight.to("meta")  # some models look at its dtype; the data is in the joint product alone
        self.joint = joint

    @property
    def sizes(self) -> Sequence[int]:
        """Outputs of each of the joined projections."""
        return self._shared.sizes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., out]."""
        return self._shared.take(x, self._part)


def fuse_projections(model: PreTrainedModel) -> None:
    """Fuse what can be, in place. Gated adapters are fused with their bases."""
    for parent in list(model.modules()):
        for names in _TOGETHER:
            modules = [getattr(parent, name, None) for name in names]
            joint = _join(modules)
            if joint is None:
                continue
            weights = [_base(module).weight.detach() for module in modules if module is not None]
            shared = _Shared(joint, [len(weight) for weight in weights])
            for part, (name, weight) in enumerate(zip(names, weights, strict=True)):
                setattr(parent, name, FusedPart(shared, part, weight, None if part else joint))


def _base(module: nn.Module) -> nn.Linear:
    base = module.base if isinstance(module, GatedLinear) else module
    assert isinstance(base, nn.Linear)
    return base


def _join(modules: Sequence[nn.Module | None]) -> nn.Module | None:
    """One module whose output is theirs side by side; None if they are not plain Linears of one kind."""
    if all(type(module) is nn.Linear for module in modules):
        return _join_linears([module for module in modules if isinstance(module, nn.Linear)])
    gated = [module for module in modules if isinstance(module, GatedLinear)]
    if len(gated) < len(modules) or not all(type(module.base) is nn.Linear for module in gated):
        return None
    if len({(module.scale, id(module.rows)) for module in gated}) > 1:
        return None
    base = _join_linears([_base(module) for module in gated])
    if base is None:
        return None
    a = torch.cat([module.lora_a.weight for module in gated])
    b = torch.block_diag(*(module.lora_b.weight for module in gated))  # type: ignore[no-untyped-call]
    return GatedLinear(base, a, b, gated[0].scale, gated[0].rows)


def _join_linears(linears: Sequence[nn.Linear]) -> nn.Linear | None:
    biases = [linear.bias for linear in linears]
    kinds = {(linear.in_features, linear.weight.dtype, linear.bias is None) for linear in linears}
    if len(kinds) > 1:
        return None
    weight = torch.cat([linear.weight.detach() for linear in linears])
    joint = nn.Linear(weight.shape[1], weight.shape[0], bias=biases[0] is not None, device="meta")
    joint.weight = nn.Parameter(weight, requires_grad=False)
    if biases[0] is not None:
        joint.bias = nn.Parameter(torch.cat([bias.detach() for bias in biases]), requires_grad=False)
    return joint
