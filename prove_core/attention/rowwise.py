"""Views of a batch that other kernels need: what each row sees, as a dense mask or as a window of its own."""

import numpy as np
import torch
from numpy.typing import NDArray

from prove_core.attention.base import Batch, Gap, lengths


def dense_mask(batch: Batch, page_size: int, window: int | None) -> torch.Tensor:
    """Which keys each row sees: bool, window after window, row after row, flattened, on the device of `batch.slots`.

    A sliding `window` counts places in the sequence, not keys: those of a gap are no distance.
    """
    device = batch.slots.device
    starts, seen = batch.qo_indptr.tolist(), lengths(batch, page_size)
    rows = np.diff(starts)
    widths = np.repeat(seen, rows)
    last = np.concatenate([np.arange(keys - own, keys) for own, keys in zip(rows, seen, strict=True)])
    place, holes = last.copy(), _holes(batch.gaps, starts[-1])
    for begin, end in holes:
        place -= end - begin
    lowest = np.zeros_like(place) if window is None else np.maximum(place - window + 1, 0)
    small = torch.from_numpy(np.stack([last, lowest, *(bound for hole in holes for bound in hole)])).to(device)
    total = int(widths.sum())
    row = torch.repeat_interleave(torch.from_numpy(widths).to(device), output_size=total)
    firsts = torch.from_numpy(np.cumsum(widths) - widths).to(device)
    key = torch.arange(total, device=device) - firsts[row]
    bounds = small[:, row]
    mask = (key <= bounds[0]) & (key >= bounds[1])
    for begin, end in zip(bounds[2::2], bounds[3::2], strict=True):
        mask &= (key < begin) | (key >= end)
    return mask


def _holes(gaps: tuple[Gap, ...], rows: int) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Per row the begin and end of its gaps (empty ones where it has none): one pair of arrays for most batches."""
    layers: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    for gap in gaps:
        own = slice(gap.row, gap.row + gap.size)
        free = next((layer for layer in layers if not layer[1][own].any()), None)
        if free is None:
            free = (np.zeros(rows, np.int64), np.zeros(rows, np.int64))
            layers.append(free)
        free[0][own], free[1][own] = gap.begin, gap.end
    return layers


def row_by_row(batch: Batch, page_size: int) -> Batch:
    """The same rows, each as a window of its own that sees the keys up to its own; gaps are kept."""
    starts, tables, indices = (t.numpy() for t in (batch.qo_indptr, batch.kv_indptr, batch.kv_indices))
    seen = [
        np.arange(keys - rows + 1, keys + 1)
        for rows, keys in zip(np.diff(starts), lengths(batch, page_size), strict=True)
    ]
    pages = [-(-own // page_size) for own in seen]
    parts = [
        indices[first : first + count] for first, own in zip(tables[:-1], pages, strict=True) for count in own.tolist()
    ]
    kv_indptr = np.concatenate([[0], np.cumsum(np.concatenate(pages))])
    last = (np.concatenate(seen) - 1) % page_size + 1
    qo_indptr, table, lasts = (
        torch.from_numpy(values.astype(np.int32)) for values in (np.arange(starts[-1] + 1), kv_indptr, last)
    )
    return Batch(qo_indptr, table, torch.from_numpy(np.concatenate(parts)), lasts, batch.slots, batch.gaps)
