"""flashinfer.append_paged_kv_cache."""

import torch

from tests.flashinfer_reference.checks import check, check_indptr, check_ints, check_shape


def append_paged_kv_cache(
    append_key: torch.Tensor,
    append_value: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    paged_kv_cache: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_last_page_len: torch.Tensor,
    kv_layout: str = "NHD",
) -> None:
    check(kv_layout == "NHD" and isinstance(paged_kv_cache, tuple), "this reference has (k, v) in NHD alone")
    keys, values = paged_kv_cache
    check(keys.stride() == values.stride(), "k and v must have the same strides")
    heads, dim = keys.shape[2:]
    rows = len(append_key)
    check_shape(append_key, (rows, heads, dim), keys.dtype, "append_key")
    check_shape(append_value, (rows, heads, dim), values.dtype, "append_value")
    check_ints(batch_indices, "batch_indices", rows)
    check_ints(positions, "positions", rows)
    check_ints(kv_indices, "kv_indices")
    check_ints(kv_last_page_len, "kv_last_page_len", len(kv_indptr) - 1)
    _append(append_key, append_value, batch_indices, positions, keys, values, kv_indices, kv_indptr)


@torch.library.custom_op("flashinfer_reference::append", mutates_args=("keys", "values"))
def _append(
    append_key: torch.Tensor,
    append_value: torch.Tensor,
    batch_indices: torch.Tensor,
    positions: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    kv_indices: torch.Tensor,
    kv_indptr: torch.Tensor,
) -> None:
    """Opaque, as a kernel is: it reads its tensors when it runs."""
    page_size = keys.shape[1]
    check_indptr(kv_indptr, "kv_indptr")
    check(len(kv_indices) == int(kv_indptr[-1]), "kv_indices and kv_indptr disagree")
    check(bool((kv_indices < len(keys)).all()), "kv_indices name a page that is not there")
    for row, (sequence, position) in enumerate(zip(batch_indices.tolist(), positions.tolist(), strict=True)):
        own = kv_indices[kv_indptr[sequence] : kv_indptr[sequence + 1]]
        check(0 <= position < len(own) * page_size, f"position {position} lies outside sequence {sequence}")
        page = own[position // page_size]
        keys[page, position % page_size] = append_key[row]
        values[page, position % page_size] = append_value[row]
