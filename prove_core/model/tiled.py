"""Deterministic mode: every Linear computes a row with the same bits, wherever and beside whatever it stands."""

import os
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.activations import ACT2CLS

from prove_core.attention.pieces import PIECE, in_pieces
from prove_core.errors import UnsupportedModel
from prove_core.model.packed import PackedLinear

TILE = 8  # rows; one decode row costs about what eight do
_SPANS = (64, 32, 16)  # larger row counts, used where this machine's kernels agree with those of one tile
_NORM_SPANS = (2048, 512, 128, 32)
_ROTARY_ROWS = 64
_SOFTCAP_TILES = 64


class TiledLinear(nn.Module):
    """A Linear that pads its rows to whole tiles and multiplies them in `spans` (row counts, descending, last `TILE`).

    Computes each span by `linear`.
    """

    def __init__(self, linear: nn.Linear | PackedLinear, spans: Sequence[int]) -> None:
        super().__init__()
        self.linear = linear
        self._spans = tuple(spans)

    @property
    def weight(self) -> torch.Tensor:
        """That of the inner Linear."""
        weight: torch.Tensor = self.linear.weight
        return weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., in]` -> `[..., out]`."""
        rows = x.numel() // self.linear.in_features
        flat = x.reshape(rows, self.linear.in_features)
        if rows % TILE:
            flat = functional.pad(flat, (0, 0, 0, -rows % TILE))
        if len(flat) in self._spans:
            out = self.linear(flat)
        else:
            parts = [self.linear(part) for part in torch.split(flat, _cut(len(flat), self._spans))]
            out = torch.cat(parts) if parts else flat.new_empty(0, self.linear.out_features)
        result: torch.Tensor = out[:rows].view(*x.shape[:-1], self.linear.out_features)
        return result


class TiledNorm(nn.Module):
    """A norm over the last dimension, of as many vectors at a time as give each the bits that it gets in one tile.

    Raises `UnsupportedModel` as `verified_spans`; at its first use, if it has no weight to tell its size.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        weight = getattr(inner, "weight", None)
        self._spans = () if weight is None else self._verify(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[..., n]` -> the same."""
        flat = x.reshape(-1, x.shape[-1])
        self._spans = self._spans or self._verify(flat)
        count = len(flat)
        if count % TILE:
            flat = functional.pad(flat, (0, 0, 0, -count % TILE))
        parts = [self.inner(part) for part in torch.split(flat, _cut(len(flat), self._spans))]
        result: torch.Tensor = torch.cat(parts)[:count].view(x.shape)
        return result

    def _verify(self, like: torch.Tensor) -> tuple[int, ...]:
        sample = torch.randn(_NORM_SPANS[0], like.shape[-1], generator=torch.Generator().manual_seed(0))
        return _verified(self.inner, sample.to(like), _NORM_SPANS, f"{type(self.inner).__name__} in {like.dtype}")


class SerialActivation(nn.Module):
    """An activation applied by `in_pieces`; rows must come in whole tiles."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Elementwise; any shape."""
        return in_pieces(self.inner, x)


class SerialRotary(nn.Module):
    """Rotary tables computed for `_ROTARY_ROWS` positions at a time, for the reason of `in_pieces`."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor, *args: object, **options: object) -> object:
        """The inner module's answer (a tensor or a tuple of them) for `position_ids` `[1, rows]`."""
        parts = [self.inner(x, piece, *args, **options) for piece in torch.split(position_ids, _ROTARY_ROWS, dim=1)]
        if len(parts) == 1 or isinstance(parts[0], torch.Tensor):
            return parts[0] if len(parts) == 1 else torch.cat(parts, 1)
        return tuple(torch.cat(tensors, 1) for tensors in zip(*parts, strict=True))


def settle_cublas() -> None:
    """Before the first product: buffers of a fixed size, so that cuBLAS sums in the same order every time.

    And no sums in 16 bits or of products in TF32.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    matmul = torch.backends.cuda.matmul
    matmul.allow_tf32 = False
    matmul.allow_bf16_reduced_precision_reduction = False
    matmul.allow_fp16_reduced_precision_reduction = False


def make_deterministic(model: PreTrainedModel) -> None:
    """Replace the model's Linears, activations and rotary embeddings by those above, in place.

    On a GPU an element is computed alike wherever it stands, so there it is Linears and norms, whose sums are cut up by
    how many rows there are. Passes must then have whole tiles of rows. Raises `UnsupportedModel` where a layer can't be
    made independent of batch-mates, or where this machine's kernels depend on a row's place in its tile.
    """
    on_gpu = model.device.type == "cuda"
    _refuse_other_products(model)
    if not on_gpu and getattr(model.config.get_text_config(decoder=True), "final_logit_softcapping", None):
        _check_softcap(model)
    spans: dict[tuple[object, ...], tuple[int, ...]] = {}
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) in (nn.Linear, PackedLinear):
                key = (child.in_features, child.out_features, child.bias is None)
                if key not in spans:
                    spans[key] = verified_spans(child)
                setattr(parent, name, TiledLinear(child, spans[key]))
            elif on_gpu and type(child).__name__.endswith("Norm"):
                setattr(parent, name, TiledNorm(child))
            elif not on_gpu and type(child) in _activation_classes() and not list(child.parameters()):
                setattr(parent, name, SerialActivation(child))
            elif not on_gpu and type(child).__name__.endswith("RotaryEmbedding"):
                setattr(parent, name, SerialRotary(child))


def verified_spans(linear: nn.Linear | PackedLinear) -> tuple[int, ...]:
    """Row counts (descending, the last `TILE`) whose products give every row the bits it gets in one tile.

    A kernel's order of summation depends on shapes alone, so random rows through each shape show whether it differs.
    """
    weight = linear.weight
    device = torch.device("cpu") if weight.is_meta else weight.device
    x = torch.randn(_SPANS[0], linear.in_features, generator=torch.Generator().manual_seed(0))
    what = f"{weight.dtype} product {linear.in_features}x{linear.out_features}"
    return _verified(linear, x.to(device, weight.dtype), _SPANS, what)


def _verified(module: nn.Module, x: torch.Tensor, spans: Sequence[int], what: str) -> tuple[int, ...]:
    """Of `spans` (descending) those that agree with `TILE` rows of `x` at a time, and `TILE`."""

    def apply(rows: int, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([module(part) for part in torch.split(x, rows)])

    with torch.inference_mode():
        base = apply(TILE, x)
        shifted = torch.arange(len(x)).view(-1, TILE).roll(1, dims=1).flatten()
        if not torch.equal(apply(TILE, x[shifted]), base[shifted]):
            raise UnsupportedModel(
                f"deterministic: this machine's {what} depends on a row's place in its tile;"
                " turn `deterministic` off or use another dtype"
            )
        return (*(rows for rows in spans if torch.equal(apply(rows, x), base)), TILE)


def _refuse_other_products(model: PreTrainedModel) -> None:
    for name, module in model.named_modules():
        matrices = any(parameter.ndim > 1 for parameter in module.parameters(recurse=False))
        if matrices and type(module) is not nn.Linear and not isinstance(module, nn.Embedding):
            raise UnsupportedModel(
                f"deterministic: {type(model).__name__} multiplies by matrices outside Linear layers ({name}),"
                " so a row's result would depend on its batch-mates; turn `deterministic` off"
            )


def _check_softcap(model: PreTrainedModel) -> None:
    """The soft cap on logits runs inside the model, out of reach: refuse where threads would cut through vectors."""
    threads, width = torch.get_num_threads(), model.get_output_embeddings().weight.shape[0]
    for tiles in range(1, _SOFTCAP_TILES + 1):
        elements = tiles * TILE * width
        tasks = min(threads, -(-elements // PIECE))
        if elements % (64 * tasks):
            raise UnsupportedModel(
                f"deterministic: the logits of {type(model).__name__} don't split evenly among {threads} threads;"
                " set `threads` to 1 or another power of two, or turn `deterministic` off"
            )


def _activation_classes() -> set[type]:
    return {entry[0] if isinstance(entry, tuple) else entry for entry in ACT2CLS.values()}


def _cut(rows: int, spans: Sequence[int]) -> list[int]:
    """`rows` (a multiple of the smallest span) as a sum of spans, largest first."""
    sizes = []
    for span in spans:
        whole, rows = divmod(rows, span)
        sizes.extend([span] * whole)
    return sizes
