"""flashinfer's wrappers of batch attention over paged KV, backend fa2."""

from typing import Any

import numpy as np
import torch

from tests.flashinfer_reference.attend import attend
from tests.flashinfer_reference.checks import (
    check,
    check_16_bit,
    check_indptr,
    check_ints,
    check_shape,
    check_workspace,
)

HEAD_DIMS = (64, 128, 256)
_CAUSAL = (torch.empty(0, dtype=torch.uint8), torch.empty(0, dtype=torch.int32))


class _Planned:
    """What both kinds of wrapper keep between plan and run."""

    def _start(self, workspace: torch.Tensor, layout: str, backend: str) -> None:
        check_workspace(workspace, "float_workspace_buffer")
        check(layout == "NHD", "this reference has layout NHD alone")
        check(backend == "fa2", f"this reference is backend fa2, not {backend}")
        self.device = workspace.device
        self._plan: dict[str, Any] | None = None

    def reset_workspace_buffer(self, float_workspace_buffer: torch.Tensor, int_workspace_buffer: torch.Tensor) -> None:
        check_workspace(float_workspace_buffer, "float_workspace_buffer")
        check_workspace(int_workspace_buffer, "int_workspace_buffer")

    def _check_pages(self, indptr: torch.Tensor, indices: torch.Tensor, last: torch.Tensor, page_size: int) -> None:
        check_indptr(indptr, "paged_kv_indptr")
        check_ints(indices, "paged_kv_indices", int(indptr[-1]))
        check_ints(last, "paged_kv_last_page_len", len(indptr) - 1)
        check(bool(((last >= 1) & (last <= page_size)).all()), f"last pages must hold 1 to {page_size} keys")
        check(bool((indptr.diff() > 0).all()), "a window without a page")

    def _keep(
        self,
        heads: tuple[int, int, int],
        page_size: int,
        sm_scale: float | None,
        window_left: int,
        cap: float | None,
        dtypes: tuple[torch.dtype, torch.dtype | None],
    ) -> None:
        query, kv, dim = heads
        check(query % kv == 0, f"{query} heads over {kv} KV heads")
        check(dim in HEAD_DIMS, f"head size {dim}")
        check(window_left >= -1, "window_left is -1 or a number of keys")
        check(cap is None or cap >= 0, "logits_soft_cap must not be negative")
        for dtype in dtypes:
            if dtype is not None:
                check_16_bit(dtype, "planned dtype")
        self._plan = {
            "heads": heads,
            "page_size": page_size,
            "scale": dim**-0.5 if sm_scale is None else float(sm_scale),
            "window_left": window_left,
            "cap": cap or 0.0,
            "q": dtypes[0],
            "kv": dtypes[1] or dtypes[0],
        }

    def _run(
        self,
        q: torch.Tensor,
        kv: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        out: torch.Tensor | None,
        rows: int,
        window_left: int | None,
        tensors: tuple[torch.Tensor, ...],
    ) -> torch.Tensor:
        plan = self._plan
        check(plan is not None, "run before plan")
        assert plan is not None
        check(isinstance(kv, tuple), "this reference has (k, v) tuples alone")
        query, kv_heads, dim = plan["heads"]
        check(window_left is None or window_left == plan["window_left"], "window_left is not the planned one")
        check_shape(q, (rows, query, dim), plan["q"], "q")
        for name, cache in zip(("k", "v"), kv, strict=True):
            check_shape(cache, (len(cache), plan["page_size"], kv_heads, dim), plan["kv"], name)
        result = torch.zeros(rows, query, dim, dtype=plan["q"], device=q.device) if out is None else out
        check_shape(result, (rows, query, dim), plan["q"], "out")
        attend(result, q, *kv, *tensors, plan["scale"], plan["window_left"], plan["cap"])
        return result


class BatchPrefillWithPagedKVCacheWrapper(_Planned):
    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        qo_indptr_buf: torch.Tensor | None = None,
        paged_kv_indptr_buf: torch.Tensor | None = None,
        paged_kv_indices_buf: torch.Tensor | None = None,
        paged_kv_last_page_len_buf: torch.Tensor | None = None,
        custom_mask_buf: torch.Tensor | None = None,
        mask_indptr_buf: torch.Tensor | None = None,
        backend: str = "auto",
        jit_args: list[Any] | None = None,
        jit_kwargs: dict[str, Any] | None = None,
        variant_owns_mask: bool = False,
    ) -> None:
        self._start(float_workspace_buffer, kv_layout, backend)
        check(jit_args is None and jit_kwargs is None and not variant_owns_mask, "no custom kernels here")
        self._graph = use_cuda_graph
        self._buffers: dict[str, Any] = {
            "qo_indptr": qo_indptr_buf,
            "kv_indptr": paged_kv_indptr_buf,
            "kv_indices": paged_kv_indices_buf,
            "last": paged_kv_last_page_len_buf,
            "mask": custom_mask_buf,
            "mask_indptr": mask_indptr_buf,
        }
        self._most_rows: int | None = None
        if use_cuda_graph:
            for name in ("qo_indptr", "kv_indptr", "kv_indices", "last"):
                check(torch.is_tensor(self._buffers[name]), f"{name}_buf should be a tensor in CUDA graph mode")
                check_ints(self._buffers[name], f"{name}_buf")
            windows = len(self._buffers["last"])
            check(len(self._buffers["qo_indptr"]) == windows + 1, "qo_indptr_buf should be batch_size + 1")
            check(len(self._buffers["kv_indptr"]) == windows + 1, "paged_kv_indptr_buf should be batch_size + 1")

    def plan(
        self,
        qo_indptr: torch.Tensor,
        paged_kv_indptr: torch.Tensor,
        paged_kv_indices: torch.Tensor,
        paged_kv_last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        head_dim_vo: int | None = None,
        custom_mask: torch.Tensor | None = None,
        packed_custom_mask: torch.Tensor | None = None,
        causal: bool = False,
        pos_encoding_mode: str = "NONE",
        use_fp16_qk_reduction: bool = False,
        sm_scale: float | None = None,
        window_left: int = -1,
        logits_soft_cap: float | None = None,
        rope_scale: float | None = None,
        rope_theta: float | None = None,
        q_data_type: str | torch.dtype = "float16",
        kv_data_type: str | torch.dtype | None = None,
        o_data_type: str | torch.dtype | None = None,
        non_blocking: bool = True,
        prefix_len_ptr: torch.Tensor | None = None,
        token_pos_in_items_ptr: torch.Tensor | None = None,
        token_pos_in_items_len: int = 0,
        max_item_len_ptr: torch.Tensor | None = None,
        seq_lens: torch.Tensor | None = None,
        seq_lens_q: torch.Tensor | None = None,
        block_tables: torch.Tensor | None = None,
        max_token_per_sequence: int | None = None,
        max_sequence_kv: int | None = None,
        fixed_split_size: int | None = None,
        disable_split_kv: bool = False,
        uniform_q_len: int | None = None,
    ) -> None:
        check_indptr(qo_indptr, "qo_indptr")
        check(len(qo_indptr) == len(paged_kv_indptr), "qo_indptr and paged_kv_indptr differ in length")
        self._check_pages(paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, page_size)
        check(head_dim_vo in (None, head_dim_qk), "values as wide as keys alone here")
        check(pos_encoding_mode == "NONE" and not use_fp16_qk_reduction, "not in this reference")
        check(fixed_split_size is None or fixed_split_size > 0, "fixed_split_size counts pages")
        check(not (fixed_split_size and self._graph), "a fixed split and CUDA graphs don't go together")
        dtypes = (_dtype(q_data_type), None if kv_data_type is None else _dtype(kv_data_type))
        self._keep((num_qo_heads, num_kv_heads, head_dim_qk), page_size, sm_scale, window_left, logits_soft_cap, dtypes)
        rows = qo_indptr.diff()
        seen = (paged_kv_indptr.diff() - 1) * page_size + paged_kv_last_page_len
        tensors = {
            "qo_indptr": qo_indptr,
            "kv_indptr": paged_kv_indptr,
            "kv_indices": paged_kv_indices,
            "last": paged_kv_last_page_len,
        }
        if custom_mask is not None or packed_custom_mask is not None:
            tensors |= _masks(custom_mask, packed_custom_mask, (rows * seen).tolist())
        elif causal:
            check(bool((rows <= seen).all()), "more queries than keys in a causal window")
        self._causal = causal
        self._rows = int(qo_indptr[-1])
        self._place(tensors)

    def _place(self, tensors: dict[str, torch.Tensor]) -> None:
        if not self._graph:
            self._buffers = {name: tensor.clone() for name, tensor in tensors.items()}
            return
        if self._most_rows is None:
            self._most_rows = self._rows
        check(self._rows <= self._most_rows, "more rows than at the first plan, in CUDA graph mode")
        check(len(tensors["last"]) == len(self._buffers["last"]), "the batch size is fixed in CUDA graph mode")
        for name, tensor in tensors.items():
            buffer = self._buffers[name]
            check(torch.is_tensor(buffer), f"{name}_buf must be given in CUDA graph mode")
            check(len(tensor) <= len(buffer), f"{name} exceeds the allocated buffer")
            buffer[: len(tensor)].copy_(tensor)
        check(
            "mask" in tensors or self._buffers["mask"] is None,
            "with a mask buffer the kernel reads a mask: plan one",
        )

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        *args: Any,
        q_scale: float | torch.Tensor | None = None,
        k_scale: float | torch.Tensor | None = None,
        v_scale: float | torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        lse: torch.Tensor | None = None,
        return_lse: bool = False,
        lse_base: str = "log2",
        lse_layout: str = "NH",
        enable_pdl: bool | None = None,
        window_left: int | None = None,
        sinks: torch.Tensor | None = None,
        kv_cache_sf: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None = None,
        skip_softmax_threshold_scale_factor: float | None = None,
        use_fp16_softmax: bool | None = None,
        uses_spcompress: bool | None = None,
    ) -> torch.Tensor:
        check(not args and not return_lse and sinks is None and kv_cache_sf is None, "not in this reference")
        check(q_scale is None and k_scale is None and v_scale is None, "scales are for 8-bit caches")
        check(self._plan is not None, "run before plan")
        names = ("qo_indptr", "kv_indptr", "kv_indices", "last")
        page = [self._buffers[name] for name in names]
        mask, starts = self._buffers.get("mask"), self._buffers.get("mask_indptr")
        if mask is None:
            check(self._causal, "windows that are not causal need a mask here")
            mask, starts = _CAUSAL
        return self._run(q, paged_kv_cache, out, self._rows, window_left, (*page, mask, starts))


class BatchDecodeWithPagedKVCacheWrapper(_Planned):
    def __init__(
        self,
        float_workspace_buffer: torch.Tensor,
        kv_layout: str = "NHD",
        use_cuda_graph: bool = False,
        use_tensor_cores: bool = False,
        paged_kv_indptr_buffer: torch.Tensor | None = None,
        paged_kv_indices_buffer: torch.Tensor | None = None,
        paged_kv_last_page_len_buffer: torch.Tensor | None = None,
        backend: str = "auto",
        jit_args: list[Any] | None = None,
    ) -> None:
        self._start(float_workspace_buffer, kv_layout, backend)
        check(not use_cuda_graph and not use_tensor_cores and jit_args is None, "not in this reference")

    def plan(
        self,
        indptr: torch.Tensor,
        indices: torch.Tensor,
        last_page_len: torch.Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim: int,
        page_size: int,
        *deprecated_positional_args: Any,
        **kwargs: Any,
    ) -> None:
        known = {"sm_scale", "window_left", "logits_soft_cap", "q_data_type", "kv_data_type"}
        check(not deprecated_positional_args and kwargs.keys() <= known, f"unknown options {kwargs.keys() - known}")
        check(
            num_qo_heads // num_kv_heads in (1, 2, 3, 4, 6, 8, 16), "no decode kernel for this many heads per KV head"
        )
        self._check_pages(indptr, indices, last_page_len, page_size)
        dtypes = (_dtype(kwargs.get("q_data_type", "float16")), kwargs.get("kv_data_type"))
        self._keep(
            (num_qo_heads, num_kv_heads, head_dim),
            page_size,
            kwargs.get("sm_scale"),
            kwargs.get("window_left", -1),
            kwargs.get("logits_soft_cap"),
            dtypes,
        )
        self._tensors = (torch.arange(len(indptr), dtype=torch.int32), indptr, indices, last_page_len)

    def run(
        self,
        q: torch.Tensor,
        paged_kv_cache: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        *args: Any,
        q_scale: float | torch.Tensor | None = None,
        k_scale: float | torch.Tensor | None = None,
        v_scale: float | torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        **others: Any,
    ) -> torch.Tensor:
        check(not args and not others, "not in this reference")
        check(q_scale is None and k_scale is None and v_scale is None, "scales are for 8-bit caches")
        check(self._plan is not None, "run before plan")
        return self._run(q, paged_kv_cache, out, len(self._tensors[3]), None, (*self._tensors, *_CAUSAL))


def _masks(mask: torch.Tensor | None, packed: torch.Tensor | None, sizes: list[int]) -> dict[str, torch.Tensor]:
    """The packed mask and its offsets in bytes: every window begins at a byte, its bits from the lowest one up."""
    check(
        mask is not None, "plan() counts a packed mask's offsets in bits where the kernel wants bytes: give custom_mask"
    )
    assert mask is not None
    check(packed is None, "a packed mask beside the plain one")
    check(mask.dtype is torch.bool and mask.ndim == 1, "custom_mask must be flat and bool")
    check(len(mask) == sum(sizes), f"custom_mask has {len(mask)} entries, not {sum(sizes)}")
    parts = [np.packbits(part.numpy(), bitorder="little") for part in torch.split(mask, sizes)]
    starts = np.cumsum([0, *map(len, parts)])
    return {
        "mask": torch.from_numpy(np.concatenate(parts)),
        "mask_indptr": torch.from_numpy(starts).to(torch.int32),
    }


def _dtype(dtype: str | torch.dtype) -> torch.dtype:
    return getattr(torch, dtype) if isinstance(dtype, str) else dtype
