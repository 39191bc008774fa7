"""Runs of rows of similar shape, padded into one batched attention: their gather indices and masks.

Built with numpy, a few microseconds a step where torch takes many more: this runs before every pass.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from prove_core.attention.base import Batch, Gap, lengths

Indices = NDArray[np.int64]

_MASK_STEP = 1024  # keys by which a kept mask grows
_LARGEST_KEPT = 1 << 18  # numbers in a kept mask: larger ones are a small part of their pass
_SMALLEST_KV_BUCKET = 256  # below this a padded key costs less than another round of operations


class Span(NamedTuple):
    """Consecutive rows `start .. start + rows - 1` of one window, the last of which sees `seen` keys.

    These are the first of the window's, less those from number `skipped` on that are `hidden` from its rows.
    """

    window: int
    start: int
    rows: int
    seen: int
    skipped: int = 0
    hidden: int = 0


@dataclass(slots=True)
class Group:
    """Spans padded to `rows` queries and `length` keys each."""

    spans: Sequence[Span]
    rows: int
    length: int
    slots: Indices
    """Storage slot of each key, `[n, length]`; what lies beyond a span's keys is masked."""
    device: torch.device
    gaps: Sequence[Gap] = ()
    """Of the pass; those of other rows do nothing here."""
    whole: bool = False
    """The group is the whole pass and its single window: queries need no gather."""
    _keys: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    _queries: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    _masks: dict[tuple[int, int, int | None], torch.Tensor | None] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Spans in the group."""
        return len(self.spans)

    def row_index(self) -> Indices:
        """The pass row behind each padded query, `[n, rows]`: padding repeats a span's last row."""
        _, start, count, *_ = np.array(self.spans).T[:, :, None]
        index: Indices = start + np.minimum(np.arange(self.rows), count - 1)
        return index

    def keys(self, heads: int, tile: int) -> torch.Tensor:
        """Index into a layer's K viewed as `[slots * heads, dim]`, in the order tile of keys, span, head, key."""
        if (heads, tile) not in self._keys:
            tiles = self.slots.reshape(self.size, -1, tile).swapaxes(0, 1)
            index = tiles[:, :, None, :] * heads + np.arange(heads)[:, None]
            self._keys[heads, tile] = self._on_device(index.reshape(-1))
        return self._keys[heads, tile]

    def queries(self, heads: int, stride: int) -> torch.Tensor:
        """Index into q viewed as `[heads * stride, dim]` (head-major), in the order span, head, query."""
        if (heads, stride) not in self._queries:
            index = np.arange(heads)[None, :, None] * stride + self.row_index()[:, None, :]
            self._queries[heads, stride] = self._on_device(index.reshape(-1))
        return self._queries[heads, stride]

    def mask(self, kv_heads: int, per_kv: int, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        """Additive mask, broadcastable to `[n * kv_heads, per_kv * rows, length]`; None where every key is seen."""
        key = (kv_heads, per_kv, window)
        if key not in self._masks:
            self._masks[key] = self._build_mask(kv_heads, per_kv, window, dtype)
        return self._masks[key]

    def _build_mask(self, kv_heads: int, per_kv: int, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        if self.whole and self.rows == 1 and (window is None or self.length <= window):
            return None
        if self.whole and window is None:
            first = self.length - self.rows
            holes = tuple(gap._replace(begin=gap.begin - first, end=gap.end - first) for gap in self.gaps)
            return causal_tail(self.rows, per_kv, self.length, dtype, self.device, holes)
        _, start, count, seen, *_ = np.array(self.spans).T[:, :, None]
        rows = self.row_index()
        query = (rows + seen - start - count)[..., None]
        key = np.arange(self.length)
        hidden = key > query
        nearest = query.copy()  # where a row stands in its sequence: gaps are no distance
        for gap in self.gaps:
            inside = (rows >= gap.row) & (rows < gap.row + gap.size)
            hidden[inside, gap.begin : gap.end] = True
            nearest[inside] -= gap.end - gap.begin
        if window is not None:
            hidden |= key <= nearest - window
        mask = np.where(hidden, np.float32(-np.inf), np.float32(0.0))
        heads = kv_heads if self.size > 1 else 1  # one span: the same mask for every head
        full = np.tile(mask[:, None, None], (1, heads, per_kv, 1, 1))
        return self._on_device(full.reshape(self.size * heads, per_kv * self.rows, self.length)).to(dtype)

    def _on_device(self, array: NDArray[np.int64] | NDArray[np.float32]) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)


def windows_of(batch: Batch, page_size: int) -> list[Span]:
    """Each window of the pass that has rows, as one span."""
    starts, seen = batch.qo_indptr.tolist(), lengths(batch, page_size)
    spans = [Span(i, starts[i], starts[i + 1] - starts[i], length) for i, length in enumerate(seen)]
    return [span for span in spans if span.rows]


def apart(window: Span, gaps: Sequence[Gap]) -> list[Span]:
    """A window's rows without a gap, then those of each of its gaps, which skip its keys."""
    end = window.start + window.rows
    own = [gap for gap in gaps if window.start <= gap.row < end]
    first = min((gap.row for gap in own), default=end)
    parts = [window._replace(rows=first - window.start, seen=window.seen - (end - first))]
    for gap in own:
        hidden = gap.end - gap.begin
        seen = window.seen - (end - gap.row - gap.size) - hidden
        parts.append(Span(window.window, gap.row, gap.size, seen, gap.begin, hidden))
    return parts


def by_size(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans of alike row and key counts together, so that a long prefill chunk or context pads no short ones."""
    buckets: defaultdict[tuple[int, int], list[Span]] = defaultdict(list)
    for span in spans:
        buckets[_bucket(span.rows), max(_bucket(span.seen), _SMALLEST_KV_BUCKET)].append(span)
    return list(buckets.values())


def build_group(
    batch: Batch, spans: Sequence[Span], *, rows: int, length: int, page_size: int, scratch_page: int
) -> Group:
    """Pad `spans` to `rows` queries and `length` keys; keys past a window's pages lie on the scratch page.

    Where no span skips keys itself, the batch's gaps hide them.
    """
    ends, indices = batch.kv_indptr.tolist(), batch.kv_indices.tolist()
    width = -(-(length + max(span.hidden for span in spans)) // page_size)
    tables = [indices[ends[span.window] : ends[span.window + 1]][:width] for span in spans]
    pages = np.array([table + [scratch_page] * (width - len(table)) for table in tables])
    slots = pages[:, :, None] * page_size + np.arange(page_size)
    slots = slots.reshape(len(spans), -1)
    keys = np.arange(length)
    places = np.stack([keys + span.hidden * (keys >= span.skipped) for span in spans])
    gaps = () if any(span.hidden for span in spans) else batch.gaps
    return Group(spans, rows, length, np.take_along_axis(slots, places, axis=1), batch.slots.device, gaps)


def causal_tail(
    rows: int, repeats: int, length: int, dtype: torch.dtype, device: torch.device, holes: tuple[Gap, ...] = ()
) -> torch.Tensor:
    """Mask `[1, repeats * rows, length]` of a window's `rows`, its last keys: only those last columns hide anything.

    So masks of all lengths are the ends of one, kept per number of rows unless it is large. `holes`: gaps whose rows
    and keys both count from the window's first row.
    """
    capacity = _MASK_STEP * -(-length // _MASK_STEP)
    if rows * repeats * capacity > _LARGEST_KEPT:
        return _new_tail(rows, repeats, length, dtype, device, holes)
    return _kept_tail(rows, repeats, capacity, dtype, device, holes)[..., capacity - length :]


def _new_tail(
    rows: int, repeats: int, capacity: int, dtype: torch.dtype, device: torch.device, holes: tuple[Gap, ...]
) -> torch.Tensor:
    hidden = torch.ones(rows, rows, dtype=torch.bool, device=device).triu(1)
    for hole in holes:
        hidden[hole.row : hole.row + hole.size, hole.begin : hole.end] = True
    mask = torch.zeros(rows, capacity, dtype=dtype, device=device)
    mask[:, capacity - rows :].masked_fill_(hidden, -torch.inf)
    return mask.repeat(repeats, 1)[None]


_kept_tail = lru_cache(maxsize=256)(_new_tail)


def _bucket(size: int) -> int:
    """The power of four at or above `size`."""
    bucket = 1
    while bucket < size:
        bucket *= 4
    return bucket
