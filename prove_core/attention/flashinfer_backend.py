"""Attention over paged KV by FlashInfer's kernels."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from prove_core.attention.base import Batch, FixedShape, LayerSpec, lengths
from prove_core.attention.rowwise import dense_mask, row_by_row
from prove_core.kv.storage import KVStorage

_WORKSPACE = 128 << 20  # bytes for partial results; FlashInfer's recommendation
_GRAPH_INT_WORKSPACE = 1 << 20  # bytes for a recorded pass's plan: far less than an eager one's 8 MiB
_SPLIT = 2048  # keys: deterministic mode adds up a row's attention in pieces of this size
_DECODE_GROUPS = (1, 2, 3)  # heads per KV head up to which the decode kernel beats the tensor cores' mostly empty tiles


class Variant(NamedTuple):
    """What a plan depends on: layers that share it share their planned wrapper."""

    query_heads: int
    kv_heads: int
    head_dim: int
    scaling: float
    window: int | None
    softcap: float | None

    @classmethod
    def of(cls, spec: LayerSpec) -> "Variant":
        """That of a layer."""
        return cls(spec.query_heads, spec.kv_heads, spec.head_dim, spec.scaling, spec.window, spec.softcap)


class FlashInferAttention:
    """One wrapper per variant of layer, planned once per pass. `flashinfer` is the package (or one that acts like it).

    The backend is pinned to fa2: `auto` would take one kernel with and another without a mask, and then a row's bits
    would change with its company's. Chains are causal; where a window is a tree, all have a mask.

    `deterministic`: every row is a request of its own, its keys added up in pieces of a fixed size, so that nothing in
    its computation depends on other rows. `shape`: the backend works on static buffers, for passes of exactly this
    shape that a CUDA graph records; `plan` then changes these buffers in place.
    """

    def __init__(
        self,
        storage: KVStorage,
        specs: Sequence[LayerSpec],
        flashinfer: Any,
        *,
        deterministic: bool = False,
        shape: FixedShape | None = None,
        workspace: torch.Tensor | None = None,
    ) -> None:
        self._storage = storage
        self._specs = tuple(specs)
        self.flashinfer = flashinfer
        self.deterministic = deterministic
        self.side_span: int | None = 0 if deterministic else None
        self._shape = shape
        device = storage.device
        self._workspace = workspace if workspace is not None else _zeros(_WORKSPACE, torch.uint8, device)
        self._append = _Append(storage, flashinfer)
        self._prefill = {variant: self._wrapper(shape) for variant in dict.fromkeys(map(Variant.of, specs))}
        self._decode = {} if deterministic or shape is not None else self._decode_wrappers()
        self._active: dict[Variant, Any] = {}
        self._rows = 0
        self._planned = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def fixed(self, shape: FixedShape) -> "FlashInferAttention":
        """A backend over the same storage for recorded passes of `shape`."""
        return FlashInferAttention(self._storage, self._specs, self.flashinfer, shape=shape, workspace=self._workspace)

    def plan(self, batch: Batch) -> None:
        """See `AttentionBackend.plan`. With a fixed shape, `batch` must have it: `ValueError` otherwise."""
        if self._planned is not None:
            self._planned.synchronize()  # the last plan may still be on its way from its staging buffer
        self._append.place(batch.slots, static=self._shape is not None)
        self._rows = int(batch.qo_indptr[-1])
        requests = row_by_row(batch, self._storage.page_size) if self.deterministic else batch
        if self.deterministic:
            self._grow_workspace(requests)
        self._active = self._decode if self._decode and self._all_single(batch) else self._prefill
        plan = self._plan_decode if self._active is self._decode else self._plan_prefill
        for variant, wrapper in self._active.items():
            plan(wrapper, variant, requests)
        if self._planned is not None:
            self._planned.record()

    def attend(self, spec: LayerSpec, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """See `AttentionBackend.attend`."""
        self._append(spec.index, k, v)
        wrapper, kv = self._active[Variant.of(spec)], self._storage.layers[spec.index]
        if len(q) == self._rows:
            whole: torch.Tensor = wrapper.run(q, kv)
            return whole
        out = q.new_zeros(len(q), spec.query_heads, spec.value_dim)
        wrapper.run(q[: self._rows], kv, out=out[: self._rows])
        return out

    def _plan_prefill(self, wrapper: Any, variant: Variant, batch: Batch) -> None:
        masked = self._masks(batch)
        mask = dense_mask(batch, self._storage.page_size, variant.window) if masked else None
        # plan() gives the right byte offsets only to a mask that it packs itself
        wrapper.plan(
            batch.qo_indptr,
            batch.kv_indptr,
            batch.kv_indices,
            batch.kv_last_page_len,
            variant.query_heads,
            variant.kv_heads,
            variant.head_dim,
            self._storage.page_size,
            custom_mask=mask,
            causal=not masked,
            fixed_split_size=max(1, _SPLIT // self._storage.page_size) if self.deterministic else None,
            **self._common(variant, windowed=not masked),
        )

    def _plan_decode(self, wrapper: Any, variant: Variant, batch: Batch) -> None:
        wrapper.plan(
            batch.kv_indptr,
            batch.kv_indices,
            batch.kv_last_page_len,
            variant.query_heads,
            variant.kv_heads,
            variant.head_dim,
            self._storage.page_size,
            **self._common(variant, windowed=True),
        )

    def _common(self, variant: Variant, *, windowed: bool) -> dict[str, Any]:
        dtype = self._storage.dtype
        return {
            "sm_scale": variant.scaling,
            "window_left": variant.window - 1 if windowed and variant.window is not None else -1,
            "logits_soft_cap": variant.softcap,
            "q_data_type": dtype,
            "kv_data_type": dtype,
        }

    def _wrapper(self, shape: FixedShape | None) -> Any:
        make = self.flashinfer.BatchPrefillWithPagedKVCacheWrapper
        if shape is None:
            return make(self._workspace, "NHD", backend="fa2")
        device = self._storage.device
        masks = {
            "custom_mask_buf": _zeros(shape.mask_bytes, torch.uint8, device),
            "mask_indptr_buf": _zeros(shape.windows + 1, torch.int32, device),
        }
        wrapper = make(
            self._workspace,
            "NHD",
            use_cuda_graph=True,
            qo_indptr_buf=_zeros(shape.windows + 1, torch.int32, device),
            paged_kv_indptr_buf=_zeros(shape.windows + 1, torch.int32, device),
            paged_kv_indices_buf=_zeros(shape.pages, torch.int32, device),
            paged_kv_last_page_len_buf=_zeros(shape.windows, torch.int32, device),
            backend="fa2",
            **(masks if shape.masked else {}),
        )
        wrapper.reset_workspace_buffer(self._workspace, _zeros(_GRAPH_INT_WORKSPACE, torch.uint8, device))
        return wrapper

    def _decode_wrappers(self) -> dict[Variant, Any]:
        """None unless all layers have few heads per KV head: a pass takes either kernel, not both."""
        if any(v.query_heads // v.kv_heads not in _DECODE_GROUPS for v in self._prefill):
            return {}
        make = self.flashinfer.BatchDecodeWithPagedKVCacheWrapper
        return {variant: make(self._workspace, "NHD", backend="fa2") for variant in self._prefill}

    def _masks(self, batch: Batch) -> bool:
        """Whether the kernels read a mask: one kernel for all passes, if bits matter."""
        if self._shape is not None:
            return self._shape.masked
        return bool(batch.gaps) or self.deterministic

    def _all_single(self, batch: Batch) -> bool:
        """Every window has one row."""
        return self._rows == len(batch.kv_last_page_len)

    def _grow_workspace(self, requests: Batch) -> None:
        """Room for a partial result of every row and piece of its keys, each as large as a tile."""
        pieces = sum(-(-seen // _SPLIT) for seen in lengths(requests, self._storage.page_size))
        rows = max(v.kv_heads * _tile(v.query_heads // v.kv_heads) * (v.head_dim + 1) for v in self._prefill)
        need = pieces * rows * 4 + (1 << 20)
        if need <= self._workspace.numel():
            return
        self._workspace = _zeros(need, torch.uint8, self._storage.device)
        for wrapper in self._prefill.values():
            ints = _zeros(max(8 << 20, 64 * pieces), torch.uint8, self._storage.device)
            wrapper.reset_workspace_buffer(self._workspace, ints)


class _Append:
    """Writes rows' K and V: to FlashInfer the storage is one sequence whose position s is slot s."""

    def __init__(self, storage: KVStorage, flashinfer: Any) -> None:
        self._storage = storage
        self._kernel = flashinfer.append_paged_kv_cache
        pages, device = storage.pages + 1, storage.device
        self._indices = torch.arange(pages, dtype=torch.int32, device=device)
        self._indptr = torch.tensor([0, pages], dtype=torch.int32, device=device)
        self._last = torch.tensor([storage.page_size], dtype=torch.int32, device=device)
        self._slots = torch.empty(0, dtype=torch.int32, device=device)
        self._sequence = torch.zeros(0, dtype=torch.int32, device=device)

    def place(self, slots: torch.Tensor, *, static: bool) -> None:
        """Where the rows of the coming pass go; `static`: always through the same tensors."""
        if len(self._sequence) != len(slots):
            if static and len(self._sequence):
                raise ValueError(f"{len(slots)} rows where {len(self._sequence)} are recorded")
            self._sequence = torch.zeros(len(slots), dtype=torch.int32, device=slots.device)
            self._slots = torch.empty_like(self._sequence)
        if static:
            self._slots.copy_(slots)
        else:
            self._slots = slots.to(torch.int32)

    def __call__(self, layer: int, k: torch.Tensor, v: torch.Tensor) -> None:
        kv = self._storage.layers[layer]
        self._kernel(k, v, self._sequence, self._slots, kv, self._indices, self._indptr, self._last, "NHD")


def _tile(heads: int) -> int:
    """Rows times heads of the tile that the kernels take for one row of `heads` heads per KV head."""
    return next((size for size in (16, 64) if heads <= size), -(-heads // 128) * 128)


def _zeros(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.zeros(count, dtype=dtype, device=device)
