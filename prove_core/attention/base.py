"""What attention backends share: the shape of a layer, the paged metadata of a pass, and their interface."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import torch

from prove_core.kv.storage import KVStorage, LayerShape


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One attention layer. With a sliding `window` a query at position p sees keys at `p - window < position <= p`.

    Scores are `scaling * q.k`, then `softcap * tanh(score / softcap)` where `softcap` is set.
    """

    index: int
    query_heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    scaling: float
    window: int | None = None
    softcap: float | None = None

    @property
    def shape(self) -> LayerShape:
        """What the layer needs of the KV storage."""
        return LayerShape(self.kv_heads, self.head_dim, self.value_dim)


class Gap(NamedTuple):
    """A hole in the causal mask: `size` rows of the pass from `row` don't see their window's keys `begin .. end - 1`.

    So a window is a tree: a branch skips the rows of KV that belong to other branches.
    """

    row: int
    size: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The ragged rows of one pass over paged KV, as FlashInfer names it; queries are the last rows of their KV.

    A row sees the keys of its window up to its own, less those in `gaps`.

    Window `i` owns rows `qo_indptr[i]:qo_indptr[i + 1]` and the pages `kv_indices[kv_indptr[i]:kv_indptr[i + 1]]`, the
    last of them holding `kv_last_page_len[i]` tokens, its own rows included. These four are int32 on the CPU.
    `slots` (int64, the model's device) says where each row's new K/V go. It may be longer than `qo_indptr[-1]`: padding
    rows follow the last window, write to the scratch page, and what comes out for them is unspecified but finite.
    """

    qo_indptr: torch.Tensor
    kv_indptr: torch.Tensor
    kv_indices: torch.Tensor
    kv_last_page_len: torch.Tensor
    slots: torch.Tensor
    gaps: tuple[Gap, ...] = ()


class FixedShape(NamedTuple):
    """Sizes of a pass that is recorded once and replayed: `windows` and `rows` exactly, padding among them.

    `pages` is the most that all windows have together, `longest` the most keys of one of them. `masked`: windows may be
    trees.
    """

    windows: int
    rows: int
    pages: int
    longest: int
    masked: bool

    @property
    def mask_bytes(self) -> int:
        """Most that the windows' masks take, one bit per row and key, each window's rounded up to bytes."""
        return self.rows * self.longest // 8 + self.windows


class AttentionBackend(Protocol):
    """Attention over paged KV: planned once per pass, run once per layer."""

    @property
    def side_span(self) -> int | None:
        """How keys behind a gap are added up, see `model.sides`. None: as without it, or nobody asks for equal bits."""
        ...

    def plan(self, batch: Batch) -> None:
        """Prepare what all layers of the coming pass share."""
        ...

    def attend(self, spec: LayerSpec, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Write `k`, `v` `[rows, kv_heads, dim]` to the batch's slots, then attend with `q` `[rows, query_heads, dim]`.

        Returns `[rows, query_heads, value_dim]` in the dtype of `q`.
        """
        ...


class Graphable(AttentionBackend, Protocol):
    """A backend that can also work on static buffers."""

    def fixed(self, shape: FixedShape) -> AttentionBackend:
        """A backend over the same storage for passes of exactly this shape, planned into the same tensors each time."""
        ...


def lengths(batch: Batch, page_size: int) -> list[int]:
    """Positions each window's last row sees, itself included."""
    ends, last = batch.kv_indptr.tolist(), batch.kv_last_page_len.tolist()
    return [(end - begin - 1) * page_size + rest for (begin, end), rest in zip(pairwise(ends), last, strict=True)]


def write(storage: KVStorage, layer: int, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Store the rows' K and V `[rows, kv_heads, dim]` in their slots."""
    keys, values = storage.layers[layer]
    keys.view(-1, *keys.shape[2:]).index_copy_(0, slots, k)
    values.view(-1, *values.shape[2:]).index_copy_(0, slots, v)
