"""Weights in the layout that the CPU's bf16 kernels want: laid out once at load, not at every product.

oneDNN reorders a plain weight on every call, which for the few rows of a decode pass costs as much as the product
itself. Torch's own compiler packs weights with the same operators. Results are the same bits.
"""

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

_ROWS = 8  # a hint for the layout; it does not depend on it here


class PackedLinear(nn.Module):
    """A bf16 Linear on the CPU with a packed weight. `weight` has the shape and dtype alone, or the head's own data."""

    def __init__(self, linear: nn.Linear, *, keep: bool) -> None:
        super().__init__()
        weight = linear.weight.detach()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.weight = weight if keep else weight.to("meta")
        self.bias = None if linear.bias is None else linear.bias.detach()
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _ROWS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in] -> [..., out]."""
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, self.bias, "none", [], "")
        return out


def pack_linears(model: PreTrainedModel) -> None:
    """Replace plain Linears of a bf16 model on the CPU, in place; a no-op where this build of torch cannot.

    The head keeps its plain weight too: it is often the embedding's, and candidates are looked up in it.
    """
    if model.dtype is not torch.bfloat16 or model.device.type != "cpu" or not _works():
        return
    head = model.get_output_embeddings()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child, keep=child is head))


def _works() -> bool:
    """The operators are torch's own, not its public interface: try them."""
    linear = nn.Linear(64, 32, dtype=torch.bfloat16)
    x = torch.linspace(-1, 1, 192).view(3, 64).to(torch.bfloat16)
    try:
        with torch.inference_mode():
            return torch.equal(PackedLinear(linear, keep=False)(x), functional.linear(x, linear.weight, linear.bias))
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
