"""Attention over paged KV in plain torch operations: the CPU backend, and the reference for others."""

from collections.abc import Sequence

import torch

from prove_core.attention.base import Batch, LayerSpec, write
from prove_core.attention.groups import Group, build_group, by_size, windows_of
from prove_core.kv.storage import KVStorage


class TorchAttention:
    """Gathers each window's K/V by slot and attends in batched products, query heads folded into rows.

    Windows of similar size share one product; probabilities are a float32 softmax rounded to the dtype of q.
    """

    side_span: int | None = None

    def __init__(self, storage: KVStorage, specs: Sequence[LayerSpec]) -> None:
        self._storage = storage
        self._variants = {(spec.query_heads, spec.kv_heads, spec.window): spec for spec in specs}
        self._groups: list[Group] = []
        self._slots = torch.empty(0, dtype=torch.int64)
        self._inverse: dict[int, torch.Tensor] = {}

    def plan(self, batch: Batch) -> None:
        """See `AttentionBackend.plan`."""
        self._slots = batch.slots
        self._groups = self._group(batch)
        self._inverse.clear()
        for spec in self._variants.values():
            self._prepare(spec)

    def attend(self, spec: LayerSpec, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See `AttentionBackend.attend`."""
        write(self._storage, spec.index, self._slots, k, v)
        rows = q.shape[0]
        by_head = q.transpose(0, 1).reshape(-1, spec.head_dim)
        if self._groups[0].whole:
            out = self._attend_group(self._groups[0], spec, by_head)
            return out.view(spec.query_heads, rows, spec.value_dim).transpose(0, 1)
        parts = [
            self._attend_group(group, spec, by_head.index_select(0, group.queries(spec.query_heads, rows)))
            for group in self._groups
        ]
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        return out.index_select(0, self._placement(spec.query_heads, rows)).view(rows, spec.query_heads, spec.value_dim)

    def _group(self, batch: Batch) -> list[Group]:
        """How this backend batches the rows of a pass."""
        page_size, scratch = self._storage.page_size, self._storage.scratch_page
        windows = windows_of(batch, page_size)
        groups = []
        for spans in by_size(windows):
            rows, length = max(span.rows for span in spans), max(span.seen for span in spans)
            groups.append(
                build_group(batch, spans, rows=rows, length=length, page_size=page_size, scratch_page=scratch)
            )
        groups[0].whole = len(windows) == 1 and windows[0].rows == len(batch.slots)
        return groups

    def _attend_group(self, group: Group, spec: LayerSpec, q: torch.Tensor) -> torch.Tensor:
        """`q` `[n * query_heads * rows, head_dim]` in the order span, head, query; the result alike."""
        k, v = (tensor[0] for tensor in self._gather(group, spec, tile=group.length))
        q = q.view(k.shape[0], -1, spec.head_dim)
        mask = self._mask(group, spec)
        if spec.softcap is None and mask is not None:
            scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=spec.scaling)
        else:
            scores = torch.bmm(q, k.transpose(1, 2)) * spec.scaling
            if spec.softcap is not None:
                scores = torch.tanh(scores / spec.softcap) * spec.softcap
            if mask is not None:
                scores = scores + mask
        # for bfloat16 this kernel computes in float32 and rounds its result
        return torch.bmm(torch.softmax(scores, -1), v).view(-1, spec.value_dim)

    def _gather(self, group: Group, spec: LayerSpec, *, tile: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The group's K and V, each `[tiles, n * kv_heads, tile, dim]`."""
        keys, values = self._storage.layers[spec.index]
        index, shape = group.keys(spec.kv_heads, tile), (-1, group.size * spec.kv_heads, tile)
        k = keys.view(-1, spec.head_dim).index_select(0, index).view(*shape, spec.head_dim)
        return k, values.view(-1, spec.value_dim).index_select(0, index).view(*shape, spec.value_dim)

    def _mask(self, group: Group, spec: LayerSpec) -> torch.Tensor | None:
        return group.mask(spec.kv_heads, spec.query_heads // spec.kv_heads, spec.window, self._storage.dtype)

    def _prepare(self, spec: LayerSpec) -> None:
        """Fill the caches of indices and masks now, so that no layer pays for them."""
        for group in self._groups:
            self._mask(group, spec)
        if not self._groups[0].whole:
            self._placement(spec.query_heads, len(self._slots))

    def _placement(self, heads: int, rows: int) -> torch.Tensor:
        """For each (row, head) of the pass its place in the concatenated group outputs, int64 `[rows * heads]`."""
        if heads not in self._inverse:
            index = torch.cat([group.queries(heads, rows) for group in self._groups])
            place = torch.zeros(heads * rows, dtype=torch.int64, device=index.device)
            # padding repeats a row, and any of its copies will do
            place[index] = torch.arange(len(index), device=index.device)
            self._inverse[heads] = place.view(heads, rows).t().flatten()
        return self._inverse[heads]
