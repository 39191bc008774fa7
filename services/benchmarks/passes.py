"""The windows whose passes are measured, and the parts of a pass: all of it, and its matrix products alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from transformers import PreTrainedModel

from prove_core.decoding.drafts import Drafts
from prove_core.decoding.fixed_rows import FixedRows
from prove_core.decoding.lookup import NO_REPEAT
from prove_core.model.apply import GatedLinear
from prove_core.model.packed import PackedLinear
from prove_core.model.rows import RowMask
from prove_core.model.window import PlaceholderGroup, Runner, Window
from prove_core.types import IDENTITY, TokenIds
from services.benchmarks.floors import PassSize

TOKEN_ROWS = (2, 4, 8, 16, 17, 32, 64)
BLOCK_SIZES = (4, 8, 16)
FUSED_ROWS = (8, 16, 24)
MOST_ROWS = max(*TOKEN_ROWS, *BLOCK_SIZES, *FUSED_ROWS)

_BLOCK = 8  # of the fused windows
_MATCHES = 0.7  # their drafts' confidence
_CHUNK = 128  # tokens of a prefill pass

Product = GatedLinear | PackedLinear | nn.Linear


@dataclass(frozen=True, slots=True)
class Shape:
    """A window of `tokens` rows of tokens, then groups of placeholders."""

    tokens: int
    groups: tuple[PlaceholderGroup, ...] = ()

    def size(self, context: int) -> PassSize:
        """Of its pass behind `context` tokens."""
        placeholders = sum(group.count for group in self.groups)
        return PassSize(self.tokens + placeholders, placeholders, context)

    def window(self, ids: TokenIds, context: int, pages: Sequence[int]) -> Window:
        """The window behind the first `context` of `ids`; it takes its tokens from those that follow, as drafts."""
        tokens = ids[context : context + self.tokens]
        return Window(tokens, context, pages, self.groups, logits=self.tokens, targets=tokens[1:])


def shapes(*, proposes: bool) -> dict[str, Shape]:
    """By name: AR, windows of tokens (what verifies), and for a model that `proposes` those with placeholders."""
    chosen = {"ar": Shape(1)} | {f"window{rows}": Shape(rows) for rows in TOKEN_ROWS}
    if proposes:
        chosen |= {f"propose{size}": Shape(1, (PlaceholderGroup(0, size - 1),)) for size in BLOCK_SIZES}
        chosen |= {f"fused{rows}": _fused(rows) for rows in FUSED_ROWS}
    return chosen


def _fused(rows: int) -> Shape:
    """A window of mode `fused` in the midst of a completion, with half a block in hand: no end in sight."""
    drafts = Drafts((0,) * (_BLOCK // 2), (_MATCHES,) * (_BLOCK // 2))
    plan = FixedRows(rows, _BLOCK - 1, IDENTITY).plan(drafts, NO_REPEAT, room=2 * rows)
    groups = [PlaceholderGroup(branch.accepted, branch.placeholders) for branch in plan.branches]
    return Shape(plan.tokens, tuple(groups))


def fill(runner: Runner, ids: TokenIds, context: int, pages: Sequence[int]) -> None:
    """Prefill the first `context` of `ids`."""
    for start in range(0, context, _CHUNK):
        runner.run([Window(ids[start : min(start + _CHUNK, context)], start, pages)])


def products(module: nn.Module) -> Iterator[Product]:
    """The products of a model as an engine runs it, its head among them: each adapter together with its base."""
    for child in module.children():
        if isinstance(child, Product):
            yield child
        else:
            yield from products(child)


def products_alone(model: PreTrainedModel, rows: RowMask, size: PassSize) -> Callable[[], None]:
    """What multiplies inputs of a pass's size with every weight of a model that a runner has prepared, in order.

    `rows` are what the model's gated adapters look at.
    """
    device, dtype = model.device, model.dtype
    placeholders = slice(size.rows - size.placeholders, size.rows) if size.placeholders else None
    inputs: dict[int, torch.Tensor] = {}
    work: list[tuple[Product, torch.Tensor]] = []
    for product in products(model):
        width = _width(product)
        if width not in inputs:
            inputs[width] = torch.ones(1, size.rows, width, dtype=dtype, device=device)
        work.append((product, inputs[width]))

    @torch.inference_mode()
    def run() -> None:
        rows.placeholders = placeholders
        for product, x in work:
            product(x)

    return run


def _width(product: Product) -> int:
    linear = product.base if isinstance(product, GatedLinear) else product
    assert isinstance(linear, nn.Linear | PackedLinear)
    return linear.in_features
