"""Windows of similar shape, padded into one batched attention: their gather indices and masks."""

from collections import defaultdict
from dataclasses import dataclass, field

import torch

from prove_core.attention.base import Batch, lengths

_SMALLEST_KV_BUCKET = 256  # below this a padded key costs less than another round of operations


@dataclass(slots=True)
class Group:
    """`n` windows padded to `rows` queries and `length` keys. `start[i]` is the first row of window i in the pass."""

    start: torch.Tensor
    count: torch.Tensor
    """Rows of each window, int64 `[n]`."""
    seen: torch.Tensor
    """Keys that each window's last row sees, int64 `[n]`."""
    rows: int
    length: int
    slots: torch.Tensor
    """Storage slot of each key, int64 `[n, length]`; padding keys sit on the scratch page."""
    whole: bool
    """The group is the whole pass and its single window: queries need no gather."""
    _keys: dict[int, torch.Tensor] = field(default_factory=dict)
    _queries: dict[tuple[int, int], torch.Tensor] = field(default_factory=dict)
    _masks: dict[tuple[int, int, int | None, torch.dtype], torch.Tensor | None] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Windows in the group."""
        return len(self.start)

    def row_index(self) -> torch.Tensor:
        """The pass row behind each padded query, int64 `[n, rows]`: padding repeats a window's last row."""
        offset = torch.arange(self.rows, device=self.start.device)
        return self.start[:, None] + torch.minimum(offset, self.count[:, None] - 1)

    def keys(self, heads: int) -> torch.Tensor:
        """Index into a layer's K viewed as `[slots * heads, dim]`, in the order window, head, key."""
        if heads not in self._keys:
            head = torch.arange(heads, device=self.slots.device)[None, :, None]
            self._keys[heads] = (self.slots[:, None, :] * heads + head).flatten()
        return self._keys[heads]

    def queries(self, heads: int, stride: int) -> torch.Tensor:
        """Index into q viewed as `[heads * stride, dim]` (head-major), in the order window, head, query."""
        if (heads, stride) not in self._queries:
            head = torch.arange(heads, device=self.start.device)[None, :, None]
            self._queries[heads, stride] = (head * stride + self.row_index()[:, None, :]).flatten()
        return self._queries[heads, stride]

    def mask(self, kv_heads: int, per_kv: int, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        """Additive mask `[n * kv_heads, per_kv * rows, length]`, or None where every key is seen."""
        key = (kv_heads, per_kv, window, dtype)
        if key not in self._masks:
            self._masks[key] = self._build_mask(kv_heads, per_kv, window, dtype)
        return self._masks[key]

    def _build_mask(self, kv_heads: int, per_kv: int, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        if self.size == 1 and self.rows == 1 and (window is None or self.length <= window):
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


def group_windows(batch: Batch, page_size: int, scratch_slot: int) -> list[Group]:
    """Split the pass into groups, so that a long prefill chunk or context doesn't pad the short ones."""
    starts, seen = batch.qo_indptr.tolist(), lengths(batch, page_size)
    buckets: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for i, length in enumerate(seen):
        rows = starts[i + 1] - starts[i]
        buckets[_bucket(rows), max(_bucket(length), _SMALLEST_KV_BUCKET)].append(i)
    device = batch.slots.device
    pages, page_ends = batch.kv_indices.to(device, torch.int64), batch.kv_indptr.tolist()
    offset = torch.arange(page_size, device=device)

    def build(members: list[int]) -> Group:
        longest = max(seen[i] for i in members)
        slots = torch.full((len(members), longest), scratch_slot, device=device)
        for row, i in zip(slots, members, strict=True):
            own = pages[page_ends[i] : page_ends[i + 1], None] * page_size + offset
            row[: seen[i]] = own.flatten()[: seen[i]]
        start = torch.tensor([starts[i] for i in members], device=device)
        count = torch.tensor([starts[i + 1] - starts[i] for i in members], device=device)
        return Group(
            start=start,
            count=count,
            seen=torch.tensor([seen[i] for i in members], device=device),
            rows=max(starts[i + 1] - starts[i] for i in members),
            length=longest,
            slots=slots,
            whole=len(seen) == 1 and starts[1] == len(batch.slots),
        )

    return [build(members) for members in buckets.values()]


def _bucket(size: int) -> int:
    """The power of four at or above `size`."""
    bucket = 1
    while bucket < size:
        bucket *= 4
    return bucket
