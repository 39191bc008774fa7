"""FlashInfer's kernels in place of modules that compute the same in several: norms, and the middle of an MLP.

What a module computes is not read off its name but compared, at load, on the weights and the device it has. A module
that no kernel agrees with stays as it is. Residual additions and rotary embeddings are plain functions inside
transformers' layers, out of reach without code of our own for each family.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from prove_core.model.fuse import FusedPart

logger = logging.getLogger(__name__)

NormKernel = Callable[[Tensor, Tensor, float], Tensor]
ProductKernel = Callable[[Tensor], Tensor]
_ROWS = 5
_TOLERANCE = 2**-6  # relative: two roundings of bfloat16


class KernelNorm(nn.Module):
    """An RMS norm over the last dimension in one kernel."""

    def __init__(self, weight: nn.Parameter, eps: float, kernel: NormKernel) -> None:
        super().__init__()
        self.weight = weight
        self._eps = eps
        self._kernel = kernel

    def forward(self, x: Tensor) -> Tensor:
        """`[..., n]` -> the same."""
        return self._kernel(x.reshape(-1, x.shape[-1]), self.weight, self._eps).view(x.shape)


class KernelMLP(nn.Module):
    """down(act(gate x) * up x), gate and up in one product and activation and multiplication in one kernel."""

    def __init__(self, joint: nn.Module, down: nn.Module, kernel: ProductKernel) -> None:
        super().__init__()
        self.joint = joint
        self.down = down
        self._kernel = kernel

    def forward(self, x: Tensor) -> Tensor:
        """`[..., hidden]` -> the same."""
        out: Tensor = self.down(self._kernel(self.joint(x)))
        return out


def use_kernels(model: PreTrainedModel, flashinfer: Any) -> None:
    """Replace what can be, in place. Projections must have been fused, and no adapter's rows be set."""
    try:
        norms, mlps = (list(_replacements(model, kind, flashinfer)) for kind in (_norm, _mlp))
    except Exception as error:  # kernels are compiled at their first use
        logger.warning("norms and MLPs by torch: FlashInfer's kernels do not run here: %s", str(error).strip()[:200])
        return
    for parent, name, module in (*norms, *mlps):
        setattr(parent, name, module)
    logger.info("FlashInfer computes %d norms and %d MLPs", len(norms), len(mlps))


def _replacements(
    model: nn.Module, make: Callable[[nn.Module, Any], nn.Module | None], flashinfer: Any
) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    for parent in model.modules():
        for name, child in parent.named_children():
            module = make(child, flashinfer)
            if module is not None:
                yield parent, name, module


def _norm(module: nn.Module, flashinfer: Any) -> nn.Module | None:
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not type(module).__name__.endswith("RMSNorm") or not isinstance(eps, float):
        return None
    if not isinstance(weight, nn.Parameter) or weight.ndim != 1 or len(list(module.parameters())) != 1:
        return None
    kernels: list[NormKernel] = [flashinfer.norm.rmsnorm, flashinfer.norm.gemma_rmsnorm]
    return _agreeing([KernelNorm(weight, eps, kernel) for kernel in kernels], module, len(weight), weight)


def _mlp(module: nn.Module, flashinfer: Any) -> nn.Module | None:
    gate, up, down = (getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj"))
    if not isinstance(gate, FusedPart) or not isinstance(up, FusedPart) or not isinstance(down, nn.Module):
        return None
    known = {"gate_proj", "up_proj", "down_proj", "act_fn"}
    if gate.joint is None or {name for name, _ in module.named_children()} - known:
        return None
    activation = flashinfer.activation
    kernels: list[ProductKernel] = [activation.silu_and_mul, activation.gelu_tanh_and_mul, activation.gelu_and_mul]
    width = next(p.shape[1] for p in gate.joint.parameters())
    like = next(gate.joint.parameters())
    return _agreeing([KernelMLP(gate.joint, down, kernel) for kernel in kernels], module, width, like)


@torch.inference_mode()
def _agreeing(candidates: list[nn.Module], module: nn.Module, width: int, like: Tensor) -> nn.Module | None:
    """The first candidate that computes what `module` does on random rows, or None."""
    generator = torch.Generator(like.device).manual_seed(0)
    x = torch.randn(1, _ROWS, width, generator=generator, device=like.device).to(like.dtype)
    expected = module(x)
    for candidate in candidates:
        found = candidate(x)
        scale = expected.abs().amax().float().item()
        if torch.allclose(found.float(), expected.float(), rtol=_TOLERANCE, atol=_TOLERANCE * scale):
            return candidate
    return None
