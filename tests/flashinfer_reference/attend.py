"""The kernel: attention of ragged windows over paged KV, every index read when it runs."""

import numpy as np
import torch

from tests.flashinfer_reference.checks import check


@torch.library.custom_op("flashinfer_reference::attend", mutates_args=("out",))
def attend(
    out: torch.Tensor,
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    qo_indptr: torch.Tensor,
    kv_indptr: torch.Tensor,
    kv_indices: torch.Tensor,
    last: torch.Tensor,
    mask: torch.Tensor,
    mask_indptr: torch.Tensor,
    scale: float,
    window_left: int,
    cap: float,
) -> None:
    """Opaque to tracing, as a kernel is. An empty `mask` means causal."""
    page_size, group = keys.shape[1], q.shape[1] // keys.shape[2]
    for window, rest in enumerate(last.tolist()):
        rows = slice(*qo_indptr[window : window + 2].tolist())
        begin, end = kv_indptr[window : window + 2].tolist()
        if rows.start == rows.stop:
            continue
        pages = kv_indices[begin:end].long()
        check(bool((pages < len(keys)).all()), "a page that is not there")
        seen = (end - begin - 1) * page_size + rest
        k, v = (cache[pages].flatten(0, 1)[:seen].float().repeat_interleave(group, 1) for cache in (keys, values))
        count = rows.stop - rows.start
        visible = torch.ones(count, seen, dtype=torch.bool).tril(seen - count)
        if len(mask):
            bits = np.unpackbits(mask[int(mask_indptr[window]) :].numpy(), bitorder="little")[: count * seen]
            visible = torch.from_numpy(bits.reshape(count, seen)).bool()
        if window_left >= 0:
            query, key = torch.arange(count)[:, None], torch.arange(seen)
            visible &= key + count + window_left >= seen + query
        check(bool(visible.any(-1).all()), "a row that sees no key")
        scores = torch.einsum("qhd,khd->hqk", q[rows].float(), k) * scale
        if cap > 0:
            scores = cap * torch.tanh(scores / cap)
        scores = scores.masked_fill(~visible, -torch.inf)
        out[rows] = torch.einsum("hqk,khd->qhd", torch.softmax(scores, -1), v).to(out.dtype)
