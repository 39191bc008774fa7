"""Runs of rows of similar shape, padded into one batched attention: their gather indices and masks."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from prove_core.attention.base import Batch, lengths

_SMALLEST_KV_BUCKET = 256  # below this a padded key costs less than another round of operations


class Span(NamedTuple):
    """Consecutive rows `start .. start + rows - 1` of one window, the last of which sees `seen` keys."""

    window: int
    start: int
    rows: int
    seen: int


@dataclass(slots=True)
class Group:
    """`n` spans padded to `rows` queries and `length` keys each."""

    start: torch.Tensor
    """First row of each span in the pass, int64 `[n]`."""
    count: torch.Tensor
    """Rows of each span, int64 `[n]`."""
    seen: torch.Tensor
    """Keys that each span's last row sees, int64 `[n]`."""
    rows: int
    length: int
    slots: torch.Tensor
    """Storage slot of each key, int64 `[n, length]`; what lies beyond a span's keys is masked."""
    whole: bool = False
    """The group is the whole pass and its single window: queries need no gather."""
    _keys: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    _queries: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    _masks: dict[tuple[int, int, int | None], torch.Tensor | None] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Spans in the group."""
        return len(self.start)

    def row_index(self) -> torch.Tensor:
        """The pass row behind each padded query, int64 `[n, rows]`: padding repeats a span's last row."""
        offset = torch.arange(self.rows, device=self.start.device)
        return self.start[:, None] + torch.minimum(offset, self.count[:, None] - 1)

    def keys(self, heads: int, tile: int) -> torch.Tensor:
        """Index into a layer's K viewed as `[slots * heads, dim]`, in the order tile of keys, span, head, key."""
        if (heads, tile) not in self._keys:
            head = torch.arange(heads, device=self.slots.device)[:, None]
            tiles = self.slots.view(self.size, -1, tile).transpose(0, 1)
            self._keys[heads, tile] = (tiles[:, :, None, :] * heads + head).flatten()
        return self._keys[heads, tile]

    def queries(self, heads: int, stride: int) -> torch.Tensor:
        """Index into q viewed as `[heads * stride, dim]` (head-major), in the order span, head, query."""
        if (heads, stride) not in self._queries:
            head = torch.arange(heads, device=self.start.device)[None, :, None]
            self._queries[heads, stride] = (head * stride + self.row_index()[:, None, :]).flatten()
        return self._queries[heads, stride]

    def mask(self, kv_heads: int, per_kv: int, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        """Additive mask `[n * kv_heads, per_kv * rows, length]`, or None where every key is seen."""
        key = (kv_heads, per_kv, window)
        if key not in self._masks:
            self._masks[key] = self._build_mask(kv_heads, per_kv, window, dtype)
        return self._masks[key]

    def _build_mask(self, kv_heads: int, per_kv: int, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        if self.whole and self.rows == 1 and (window is None or self.length <= window):
            return None
        last = self.start + self.count - 1
        query = self.row_index() + (self.seen - 1 - last)[:, None]
        key = torch.arange(self.length, device=query.device)
        hidden = key > query[..., None]
        if window is not None:
            hidden |= key <= query[..., None] - window
        mask = torch.zeros(hidden.shape, dtype=dtype, device=query.device).masked_fill_(hidden, -torch.inf)
        full = mask[:, None, None].expand(self.size, kv_heads, per_kv, self.rows, self.length)
        return full.reshape(self.size * kv_heads, per_kv * self.rows, self.length)


def windows_of(batch: Batch, page_size: int) -> list[Span]:
    """Each window of the pass as one span."""
    starts, seen = batch.qo_indptr.tolist(), lengths(batch, page_size)
    return [Span(i, starts[i], starts[i + 1] - starts[i], length) for i, length in enumerate(seen)]


def by_size(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans of alike row and key counts together, so that a long prefill chunk or context pads no short ones."""
    buckets: defaultdict[tuple[int, int], list[Span]] = defaultdict(list)
    for span in spans:
        buckets[_bucket(span.rows), max(_bucket(span.seen), _SMALLEST_KV_BUCKET)].append(span)
    return list(buckets.values())


def build_group(
    batch: Batch, spans: Sequence[Span], *, rows: int, length: int, page_size: int, scratch_page: int
) -> Group:
    """Pad `spans` to `rows` queries and `length` keys; keys past a window's pages lie on the scratch page."""
    ends, indices = batch.kv_indptr.tolist(), batch.kv_indices.tolist()
    width = -(-length // page_size)
    tables = [indices[ends[span.window] : ends[span.window + 1]][:width] for span in spans]
    device = batch.slots.device
    pages = torch.tensor([table + [scratch_page] * (width - len(table)) for table in tables], device=device)
    slots = pages[:, :, None] * page_size + torch.arange(page_size, device=device)
    return Group(
        start=torch.tensor([span.start for span in spans], device=device),
        count=torch.tensor([span.rows for span in spans], device=device),
        seen=torch.tensor([span.seen for span in spans], device=device),
        rows=rows,
        length=length,
        slots=slots.view(len(spans), -1)[:, :length].contiguous(),
    )


def _bucket(size: int) -> int:
    """The power of four at or above `size`."""
    bucket = 1
    while bucket < size:
        bucket *= 4
    return bucket
