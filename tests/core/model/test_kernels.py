"""FlashInfer's kernels take the place of modules that they agree with, and of no others."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from prove_core.model.fuse import fuse_projections
from prove_core.model.kernels import KernelMLP, KernelNorm, use_kernels
from tests import flashinfer_reference
from tests.core.tiny import tiny_model

IDS = torch.arange(12)[None] * 7


def counts(model: PreTrainedModel) -> tuple[int, int]:
    modules = list(model.modules())
    return sum(isinstance(m, KernelNorm) for m in modules), sum(isinstance(m, KernelMLP) for m in modules)


@pytest.mark.parametrize(
    ("family", "norms"),
    [("llama", 7), ("qwen2", 7), ("qwen3", 13), ("mistral", 7), ("gemma2", 13), ("gemma3_text", 19)],
)
def test_models_compute_the_same(family: str, norms: int) -> None:
    model = tiny_model(family, dtype=torch.bfloat16)
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.weight.data.uniform_(0.5, 1.5, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        before = model(IDS).logits
        fuse_projections(model)
        use_kernels(model, flashinfer_reference)
        after = model(IDS).logits
    assert counts(model) == (norms, 3)
    assert (after - before).abs().max() < 0.05 * before.abs().max()


class Doubled(nn.Module):
    """The activation of some other model."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * nn.functional.silu(x)


class OtherRMSNorm(LlamaRMSNorm):  # type: ignore[misc]
    """A norm by its name alone."""

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        normed: torch.Tensor = super().forward(hidden_states)
        return normed + 0.1


def test_what_computes_something_else_stays() -> None:
    model = tiny_model(dtype=torch.bfloat16)
    model.model.norm = OtherRMSNorm(64).to(torch.bfloat16)
    model.model.layers[1].mlp.act_fn = Doubled()
    fuse_projections(model)
    use_kernels(model, flashinfer_reference)
    assert counts(model) == (6, 2)
    assert isinstance(model.model.norm, OtherRMSNorm)


def test_kernels_that_are_wrong_are_not_used() -> None:
    model = tiny_model(dtype=torch.bfloat16)
    fuse_projections(model)

    def wrong(*inputs: torch.Tensor) -> torch.Tensor:
        return torch.full_like(inputs[0][..., : inputs[0].shape[-1] // (2 if len(inputs) == 1 else 1)], float("nan"))

    norm = SimpleNamespace(rmsnorm=wrong, gemma_rmsnorm=wrong)
    activation = SimpleNamespace(silu_and_mul=wrong, gelu_tanh_and_mul=wrong, gelu_and_mul=wrong)
    use_kernels(model, SimpleNamespace(norm=norm, activation=activation))
    assert counts(model) == (0, 0)
