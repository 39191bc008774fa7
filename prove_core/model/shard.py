"""Tensor parallelism: each rank keeps its share of a model's Linears, as transformers' own plan says.

Of two products in a row the first is cut by its outputs (colwise) and the second by its inputs (rowwise), so that only
what the second gives has to be added up. What does not divide among the ranks (or has no plan) stays whole on each of
them, and is computed by each.
"""

import logging
from collections import Counter
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from prove_core.attention.base import LayerSpec
from prove_core.errors import UnsupportedModel
from prove_core.model.apply import GatedLinear
from prove_core.model.probe import probe, trial_logits
from prove_core.model.ranks import Ranks
from prove_core.model.shared_head import share_head

logger = logging.getLogger(__name__)

Product = nn.Linear | GatedLinear

_OUT, _IN = "colwise", "rowwise"
_JOINED, _CUT = "colwise_gather_output", "rowwise_split_input"
_KV = ("k_proj", "v_proj")
# of logits, relative: bfloat16 alone may be 0.16 away from float32 where activations are massive; a wrong cut is 1 away
_TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.25}


class Summed(nn.Module):
    """A product over this rank's share of the inputs, added to those of the others."""

    def __init__(self, inner: Product, ranks: Ranks, *, cut: bool) -> None:
        super().__init__()
        self.inner = inner
        self._ranks = ranks
        self._cut = cut  # the input is whole: take our share of it first

    @property
    def weight(self) -> Tensor:
        """This rank's share: some models look at its dtype."""
        return self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] (this rank's share of it, unless it is cut here) -> [..., out]."""
        if self._cut:
            x = x.chunk(self._ranks.size, dim=-1)[self._ranks.rank]
        return self._ranks.sum(self.inner(x))


class Joined(nn.Module):
    """A product for this rank's share of the outputs, joined with those of the others."""

    def __init__(self, inner: Product, ranks: Ranks) -> None:
        super().__init__()
        self.inner = inner
        self._ranks = ranks

    @property
    def weight(self) -> Tensor:
        """This rank's share: some models look at its dtype."""
        return self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        return self._ranks.join(self.inner(x))


def shard_model(model: PreTrainedModel, ranks: Ranks, device: torch.device) -> None:
    """Cut the model, its gated adapter included, down to this rank's share, in place, and move that to `device`.

    Raises UnsupportedModel where nothing of it can be shared out, or where the shares do not compute what the whole
    does (checked by a trial pass).
    """
    ranks.meet()
    specs = probe(model)
    before = trial_logits(model)
    parents = _planned(model)
    whole: Counter[str] = Counter()
    for path, styles in parents.items():
        if not _shard(model.get_submodule(path), styles, specs, ranks):
            whole[path.rpartition(".")[2]] += 1
    if sum(whole.values()) == len(parents):
        raise UnsupportedModel(
            f"{type(model).__name__} cannot be shared out among {ranks.size} ranks: {_why(specs, parents)};"
            " choose another tensor_parallel"
        )
    if whole and ranks.leads:
        names = ", ".join(f"{name} of {count} layers" for name, count in whole.items())
        logger.warning("tensor_parallel %d: %s stay whole on every rank (%s)", ranks.size, names, _heads(specs))
    model.to(device)
    share_head(model, ranks)
    _check_same(model, before, ranks)


def _planned(model: PreTrainedModel) -> dict[str, dict[str, str]]:
    """For each module with products that the plan shares out: the names of these and how."""
    plan: dict[str, str] = model.tp_plan or {}
    styles = {pattern: style for pattern, style in plan.items() if style in (_OUT, _IN, _JOINED, _CUT)}
    parents: dict[str, dict[str, str]] = {}
    for path, module in model.named_modules():
        parent, _, name = path.rpartition(".")
        if parent and isinstance(module, Product) and not path.endswith(".base"):
            for pattern, style in styles.items():
                if fnmatchcase(path, pattern):
                    parents.setdefault(parent, {})[name] = style
    return parents


def _shard(parent: nn.Module, styles: dict[str, str], specs: list[LayerSpec], ranks: Ranks) -> bool:
    """Share out the products of one module; whether that was possible."""
    products = {name: _product(parent, name) for name in styles}
    layer = getattr(parent, "layer_idx", None)
    spec = specs[layer] if isinstance(layer, int) else None
    if not _divides(products, styles, spec, ranks.size):
        return False
    for name, product in products.items():
        setattr(parent, name, _share(name, product, styles[name], spec, ranks))
    return True


def _divides(products: dict[str, Product], styles: dict[str, str], spec: LayerSpec | None, size: int) -> bool:
    if any(
        (_width(products[name]) if style in (_OUT, _JOINED) else _depth(products[name])) % size
        for name, style in styles.items()
        if spec is None or name not in _KV or style != _OUT
    ):
        return False
    if _OUT not in styles.values() and _IN not in styles.values():
        return True
    if not {_OUT, _IN} <= set(styles.values()):  # half of a pair: its other half is no Linear
        return False
    if spec is None:
        return True
    shared = spec.kv_heads % size == 0
    copied = size % spec.kv_heads == 0 and set(_KV) <= set(products)
    return spec.query_heads % size == 0 and (shared or copied)


def _share(name: str, product: Product, style: str, spec: LayerSpec | None, ranks: Ranks) -> nn.Module:
    """This rank's part of one product."""
    if style in (_IN, _CUT):
        return Summed(_inputs(product, _part(_depth(product), ranks), ranks), ranks, cut=style == _CUT)
    rows = _part(_width(product), ranks)
    if spec is not None and name in _KV and spec.kv_heads % ranks.size:  # fewer heads than ranks: each has one
        head, size = ranks.rank * spec.kv_heads // ranks.size, _width(product) // spec.kv_heads
        rows = slice(head * size, (head + 1) * size)
    share = _outputs(product, rows)
    return Joined(share, ranks) if style == _JOINED else share


def _outputs(product: Product, rows: slice) -> Product:
    if isinstance(product, GatedLinear):
        base = _outputs(_linear_of(product), rows)
        return GatedLinear(
            base, product.lora_a.weight, product.lora_b.weight[rows].clone(), product.scale, product.rows
        )
    return _linear(product.weight[rows], None if product.bias is None else product.bias[rows])


def _inputs(product: Product, columns: slice, ranks: Ranks) -> Product:
    if isinstance(product, GatedLinear):
        base = _inputs(_linear_of(product), columns, ranks)
        a = product.lora_a.weight[:, columns].clone()
        return GatedLinear(base, a, product.lora_b.weight, product.scale, product.rows)
    return _linear(product.weight[:, columns], product.bias if ranks.leads else None)  # a bias counts once in the sum


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format), requires_grad=False)
    if bias is not None:
        linear.bias = nn.Parameter(bias.detach().clone(), requires_grad=False)
    return linear


def _product(parent: nn.Module, name: str) -> Product:
    product = getattr(parent, name)
    assert isinstance(product, Product)
    return product


def _linear_of(product: Product) -> nn.Linear:
    linear = product.base if isinstance(product, GatedLinear) else product
    assert isinstance(linear, nn.Linear)
    return linear


def _width(product: Product) -> int:
    return _linear_of(product).out_features


def _depth(product: Product) -> int:
    return _linear_of(product).in_features


def _part(length: int, ranks: Ranks) -> slice:
    size = length // ranks.size
    return slice(ranks.rank * size, (ranks.rank + 1) * size)


def _check_same(model: PreTrainedModel, before: Tensor, ranks: Ranks) -> None:
    after = trial_logits(model).to(before.device)
    error = float((after - before).norm() / before.norm())
    if not error <= _TOLERANCE[model.dtype]:
        raise UnsupportedModel(
            f"{type(model).__name__} computes something else when shared out among {ranks.size} ranks (by {error:.1g}):"
            " its plan for tensor parallelism is not one we can follow"
        )


def _heads(specs: list[LayerSpec]) -> str:
    return f"{specs[0].query_heads} heads, {specs[0].kv_heads} KV heads"


def _why(specs: list[LayerSpec], parents: dict[str, dict[str, str]]) -> str:
    return f"with {_heads(specs)} none of its layers divides" if parents else "transformers has no plan for it"
