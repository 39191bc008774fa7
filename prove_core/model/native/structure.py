"""Which models the compiled pass computes: decoders built like Llama, told by their modules.

Whether they also compute like Llama is for `check` to find out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from transformers import PreTrainedModel

from prove_core.attention.base import LayerSpec
from prove_core.model.apply import GatedLinear
from prove_core.model.fuse import FusedPart
from prove_core.model.native.weights import WIDE

_DECODER = {"embed_tokens", "layers", "norm", "rotary_emb"}
_LAYER = {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"}
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj"}
_NORMS = {"q_norm", "k_norm"}
_MLP = {"gate_proj", "up_proj", "down_proj", "act_fn"}

Product = nn.Linear | GatedLinear
_WIDEST_HEAD = 256


class NotSupported(Exception):
    """The compiled pass does not compute this model, for the reason given."""


@dataclass(frozen=True, slots=True)
class LayerParts:
    """What a decoder layer consists of; `qkv` and `gate_up` are joint products (`fuse`) of so many outputs each."""

    input_norm: Tensor
    middle_norm: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None
    qkv: Product
    qkv_sizes: Sequence[int]
    o: Product
    gate_up: Product
    inner: int
    down: Product


@dataclass(frozen=True, slots=True)
class Parts:
    """What a model consists of."""

    embedding: Tensor
    layers: Sequence[LayerParts]
    final_norm: Tensor
    rotary: nn.Module
    head: nn.Linear
    epsilon: float


def parts(model: PreTrainedModel, specs: Sequence[LayerSpec]) -> Parts:
    """Take a model with fused projections apart. Raises NotSupported."""
    decoder, head = model.get_decoder(), model.get_output_embeddings()
    _need(not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()), "it has hooks")
    _need(_children(decoder) == _DECODER, "its decoder has other parts than Llama's")
    _need(type(head) is nn.Linear and head.bias is None, "its head is no plain Linear")
    norms = [module for module in decoder.modules() if type(module) is type(decoder.norm)]
    epsilons = {float(getattr(norm, "variance_epsilon", getattr(norm, "eps", -1.0))) for norm in norms}
    _need(len(epsilons) == 1 and min(epsilons) >= 0, "its norms are of another kind than RMSNorm")
    _check_sizes(specs, decoder.norm.weight.numel())
    layers = [_layer(layer) for layer in decoder.layers]
    _need(len(layers) == len(specs), "its layers are of several kinds")
    embed = model.get_input_embeddings()
    _need(type(embed) is nn.Embedding, "its embeddings are not merely looked up")
    return Parts(embed.weight.detach(), layers, decoder.norm.weight, decoder.rotary_emb, head, epsilons.pop())


def _layer(layer: nn.Module) -> LayerParts:
    _need(_children(layer) == _LAYER, "its layers have other parts than Llama's")
    attention, mlp = layer.self_attn, layer.mlp
    assert isinstance(attention, nn.Module)
    assert isinstance(mlp, nn.Module)
    _need(_children(attention) - _NORMS == _ATTENTION, "its attention has other parts than Llama's")
    _need(_children(mlp) == _MLP, "its MLP has other parts than Llama's")
    _need(type(mlp.act_fn).__name__ in {"SiLUActivation", "SiLU"}, "its activation is not SiLU")
    down = _product(mlp.down_proj)
    inner = _inputs(down)
    _need(inner % WIDE == 0, f"its MLP is {inner} wide, not a multiple of {WIDE}")
    qkv, qkv_sizes = _joint(attention.q_proj)
    gate_up, _ = _joint(mlp.gate_proj)
    return LayerParts(
        input_norm=_weight(layer.input_layernorm),
        middle_norm=_weight(layer.post_attention_layernorm),
        q_norm=_weight(attention.q_norm) if hasattr(attention, "q_norm") else None,
        k_norm=_weight(attention.k_norm) if hasattr(attention, "k_norm") else None,
        qkv=qkv,
        qkv_sizes=qkv_sizes,
        o=_product(attention.o_proj),
        gate_up=gate_up,
        inner=inner,
        down=down,
    )


def _check_sizes(specs: Sequence[LayerSpec], hidden: int) -> None:
    shapes = {(spec.query_heads, spec.kv_heads, spec.head_dim, spec.value_dim) for spec in specs}
    _need(len(shapes) == 1, "its layers differ in shape")
    _, _, dim, value_dim = shapes.pop()
    _need(dim == value_dim and dim % WIDE == 0, f"its heads are {dim} wide, not a multiple of {WIDE}")
    _need(dim <= _WIDEST_HEAD, f"its heads are {dim} wide, more than {_WIDEST_HEAD}")
    _need(hidden % WIDE == 0, f"it is {hidden} wide, not a multiple of {WIDE}")
    _need(all(spec.softcap is None for spec in specs), "its attention has a soft cap")


def _children(module: nn.Module) -> set[str]:
    return {name for name, _ in module.named_children()}


def _weight(norm: object) -> Tensor:
    assert isinstance(norm, nn.Module)
    weight = norm.weight
    _need(
        isinstance(weight, Tensor) and len(list(norm.parameters())) == 1, "its norms are of another kind than RMSNorm"
    )
    assert isinstance(weight, Tensor)
    return weight


def _joint(module: object) -> tuple[Product, Sequence[int]]:
    _need(isinstance(module, FusedPart), "its projections cannot be joined")
    assert isinstance(module, FusedPart)
    return _product(module.joint), module.sizes


def _product(module: object) -> Product:
    base = module.base if isinstance(module, GatedLinear) else module
    _need(type(base) is nn.Linear, "its projections are no plain Linears")
    assert isinstance(module, Product)
    return module


def _inputs(product: Product) -> int:
    base = product.base if isinstance(product, GatedLinear) else product
    assert isinstance(base, nn.Linear)
    return base.in_features


def _need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise NotSupported(otherwise)
