"""Attention over paged KV in plain torch operations: the CPU backend, and the reference for others."""

from collections.abc import Sequence

import torch

from prove_core.attention.base import Batch, LayerSpec, write
from prove_core.attention.groups import Group, group_windows
from prove_core.kv.storage import KVStorage


class TorchAttention:
    """Gathers each window's K/V by slot and attends in batched products, query heads folded into rows.

    Windows of similar size share one product; probabilities are a float32 softmax rounded to the dtype of q.
    """

    def __init__(self, storage: KVStorage, specs: Sequence[LayerSpec]) -> None:
        self._storage = storage
        self._variants = {(spec.query_heads, spec.kv_heads, spec.window): spec for spec in specs}
        self._groups: list[Group] = []
        self._slots = torch.empty(0, dtype=torch.int64)
        self._inverse: dict[int, torch.Tensor] = {}

    def plan(self, batch: Batch) -> None:
        """See `AttentionBackend.plan`."""
        page_size = self._storage.page_size
        self._slots = batch.slots
        self._groups = group_windows(batch, page_size, self._storage.scratch_page * page_size)
        self._inverse.clear()
        for spec in self._variants.values():
            self._prepare(spec)

    def _prepare(self, spec: LayerSpec) -> None:
        """Fill the groups' caches of indices and masks now, so that no layer pays for them."""
        for group in self._groups:
            group.keys(spec.kv_heads)
            self._mask(group, spec)
        if not self._groups[0].whole:
            self._placement(spec.query_heads, len(self._slots))

    def _mask(self, group: Group, spec: LayerSpec) -> torch.Tensor | None:
        return group.mask(spec.kv_heads, spec.query_heads // spec.kv_heads, spec.window, self._storage.dtype)

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

    def _attend_group(self, group: Group, spec: LayerSpec, q: torch.Tensor) -> torch.Tensor:
        """`q` `[n * query_heads * rows, head_dim]` in the order window, head, query; the result alike."""
        keys, values = self._storage.layers[spec.index]
        index, batch = group.keys(spec.kv_heads), group.size * spec.kv_heads
        k = keys.view(-1, spec.head_dim).index_select(0, index).view(batch, group.length, spec.head_dim)
        v = values.view(-1, spec.value_dim).index_select(0, index).view(batch, group.length, spec.value_dim)
        per_kv = spec.query_heads // spec.kv_heads
        q = q.view(batch, per_kv * group.rows, spec.head_dim)
        scores = _scores(q, k, spec, self._mask(group, spec))
        # for bfloat16 this kernel computes in float32 and rounds its result
        return torch.bmm(torch.softmax(scores, -1), v).view(-1, spec.value_dim)

    def _placement(self, heads: int, rows: int) -> torch.Tensor:
        """For each (row, head) of the pass its place in the concatenated group outputs, int64 `[rows * heads]`."""
        if heads not in self._inverse:
            place = torch.zeros(heads * rows, dtype=torch.int64, device=self._slots.device)
            taken = 0
            for group in self._groups:
                index = group.queries(heads, rows)
                place[index] = torch.arange(taken, taken + len(index), device=place.device)
                taken += len(index)
            self._inverse[heads] = place.view(heads, rows).t().flatten()
        return self._inverse[heads]


def _scores(q: torch.Tensor, k: torch.Tensor, spec: LayerSpec, mask: torch.Tensor | None) -> torch.Tensor:
    if spec.softcap is None and mask is not None:
        return torch.baddbmm(mask, q, k.transpose(1, 2), alpha=spec.scaling)
    scores = torch.bmm(q, k.transpose(1, 2)) * spec.scaling
    if spec.softcap is not None:
        scores = torch.tanh(scores / spec.softcap) * spec.softcap
    return scores if mask is None else scores + mask
