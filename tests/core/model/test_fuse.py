"""Projections computed together give what they gave apart, with and without gated adapters."""

import copy

import pytest
import torch
from torch import nn

from prove_core.model.apply import GatedLinear
from prove_core.model.fuse import FusedPart, fuse_projections
from prove_core.model.packed import PackedLinear, pack_linears
from prove_core.model.rows import RowMask
from tests.core.tiny import FAMILIES, VOCABULARY, tiny_model

IDS = torch.randint(0, VOCABULARY, (1, 9), generator=torch.Generator().manual_seed(0))
TOGETHER = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")


def gate(model: nn.Module, rows: RowMask) -> None:
    """Adapters of rank 5 on every projection."""
    generator = torch.Generator().manual_seed(1)
    for parent in list(model.modules()):
        for name, base in list(parent.named_children()):
            if isinstance(base, nn.Linear) and name.endswith("_proj"):
                a, b = (
                    torch.randn(size, generator=generator).to(base.weight.dtype) * 0.3
                    for size in ((5, base.in_features), (base.out_features, 5))
                )
                setattr(parent, name, GatedLinear(base, a, b, 2.0, rows))


def parts(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, FusedPart)]


@torch.inference_mode()
@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_logits(family: str) -> None:
    model = tiny_model(family)
    expected = model(IDS).logits
    fuse_projections(model)
    assert len(parts(model)) == 3 * len(TOGETHER)
    torch.testing.assert_close(model(IDS).logits, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model(IDS[:, :1]).logits, expected[:, :1], rtol=1e-4, atol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("placeholders", [None, slice(4, 9), torch.tensor([2, 3, 7]), slice(0, 9)])
def test_gated_adapters_act_on_their_rows_alone(placeholders: slice | torch.Tensor | None) -> None:
    rows = RowMask()
    apart = tiny_model("qwen2")
    stock = apart(IDS).logits
    gate(apart, rows)
    together = copy.deepcopy(apart)
    for module in together.modules():
        if isinstance(module, GatedLinear):
            module.rows = rows
    fuse_projections(together)
    assert parts(together)
    rows.placeholders = placeholders
    expected = apart(IDS).logits
    torch.testing.assert_close(together(IDS).logits, expected, rtol=1e-4, atol=1e-4)
    if placeholders is None:
        assert torch.equal(expected, stock)
    else:
        assert not torch.allclose(expected, stock)


@torch.inference_mode()
def test_a_part_asked_out_of_turn_is_still_right() -> None:
    """Another input, a part twice, a new tensor with the same numbers."""
    layer = tiny_model().model.layers[0].self_attn
    linears = {name: copy.deepcopy(getattr(layer, name)) for name in ("q_proj", "k_proj", "v_proj")}
    model = tiny_model()
    fuse_projections(model)
    fused = model.model.layers[0].self_attn
    x, y = torch.randn(1, 3, 64), torch.randn(1, 3, 64)
    for name, value in [
        ("q_proj", x),
        ("k_proj", y),
        ("v_proj", x),
        ("v_proj", x),
        ("k_proj", x.clone()),
        ("q_proj", y),
    ]:
        torch.testing.assert_close(getattr(fused, name)(value), linears[name](value))
    value = x.clone()
    before = fused.q_proj(value).clone()
    value.add_(1.0)  # the same tensor with other numbers, once all parts have had it
    fused.k_proj(value), fused.v_proj(value)
    assert not torch.allclose(fused.q_proj(value), before)


def test_linears_of_different_kinds_stay_apart() -> None:
    model = tiny_model("llama")
    layer = model.model.layers[0]
    layer.self_attn.k_proj = nn.Linear(64, 32, bias=True)
    layer.mlp.up_proj = nn.Sequential(layer.mlp.up_proj)  # type: ignore[assignment]
    fuse_projections(model)
    assert not [name for name in parts(model) if "layers.0" in name]


@torch.inference_mode()
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("count", [1, 5, 9])
def test_packed_weights_give_the_same_bits(family: str, count: int) -> None:
    model = tiny_model(family, dtype=torch.bfloat16)
    expected = model(IDS[:, :count]).logits
    pack_linears(model)
    packed = [module for module in model.modules() if isinstance(module, PackedLinear)]
    if not packed:
        pytest.skip("this build of torch cannot pack weights")
    assert not [module for module in model.modules() if type(module) is nn.Linear]
    assert torch.equal(model(IDS[:, :count]).logits, expected)
    assert not model.get_output_embeddings().weight.is_meta, "candidates are looked up in the head"


def test_float32_is_left_alone() -> None:
    model = tiny_model()
    pack_linears(model)
    assert not [module for module in model.modules() if isinstance(module, PackedLinear)]
