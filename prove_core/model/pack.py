"""Windows into the ragged tensors of one pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from prove_core.attention.base import Batch, Gap
from prove_core.model.shapes import PassKind, PassShape
from prove_core.model.window import PlaceholderGroup, Window


@dataclass(frozen=True, slots=True)
class Packed:
    """One pass: `ids` and `positions` int64 `[1, rows]`, its `batch`, and which rows are special (int64, ascending).

    `placeholders` are the rows of placeholders, `span` the same where they are neighbours, `ordinals` the place of each
    within its group. `logits` are the rows that want an output, window after window, then repeats of the last up to
    whole tiles. Rows from `batch.qo_indptr[-1]` on are padding.
    """

    ids: torch.Tensor
    positions: torch.Tensor
    batch: Batch
    placeholders: torch.Tensor
    span: slice | None
    ordinals: torch.Tensor
    logits: torch.Tensor


def pack(
    windows: Sequence[Window],
    *,
    page_size: int,
    scratch_page: int,
    placeholder_id: int,
    tile: int,
    device: torch.device,
    shape: PassShape | None = None,
) -> Packed:
    """Lay the windows' rows out one after another, padded to a multiple of `tile` rows.

    With a `shape`, which must hold the windows: padded to exactly its rows, placeholders (where it has some) and rows
    with logits, and its windows and one more. The windows that are missing have no rows, the last one all padding.
    """
    ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    rows, pages, last = [0], [0], []
    indices: list[int] = []
    placeholders: list[int] = []
    ordinals: list[int] = []
    logits: list[int] = []
    gaps: list[Gap] = []
    for window in windows:
        first, length = len(ids), window.length
        ids.extend(window.tokens)
        positions.extend(range(window.start, window.end))
        for group in window.groups:
            gaps.extend(_gap(window, group, len(ids), first))
            placeholders.extend(range(len(ids), len(ids) + group.count))
            ordinals.extend(range(group.count))
            ids.extend([placeholder_id] * group.count)
            follows = window.start + group.after + 1
            positions.extend(range(follows, follows + group.count))
        table = window.pages[: -(-length // page_size)]
        slots.extend(table[p // page_size] * page_size + p % page_size for p in range(window.start, length))
        indices.extend(table)
        logits.extend(range(len(ids) - window.outputs, len(ids)))
        rows.append(len(ids))
        pages.append(len(indices))
        last.append((length - 1) % page_size + 1)
    padding = -len(ids) % tile if shape is None else shape.rows - len(ids)
    if shape is None:
        logits.extend(logits[-1:] * (-len(logits) % tile))
    else:
        _pad_rows(shape, placeholders, ordinals, logits)
        for count in [0] * (shape.windows - len(windows)) + [padding]:
            indices.extend([scratch_page] * max(1, -(-count // page_size)))
            rows.append(rows[-1] + count)
            pages.append(len(indices))
            last.append((count - 1) % page_size + 1 if count else 1)
    ids.extend([0] * padding)
    positions.extend([0] * padding)
    slots.extend([scratch_page * page_size] * padding)

    qo_indptr, kv_indptr, kv_indices, last_page_len = _tensors(
        (rows, pages, indices, last), np.int32, torch.device("cpu")
    )
    row_wise = _tensors((ids, positions, placeholders, ordinals, logits, slots), np.int64, device)
    return Packed(
        ids=row_wise[0][None],
        positions=row_wise[1][None],
        placeholders=row_wise[2],
        span=_span(placeholders) if shape is None else None,
        ordinals=row_wise[3],
        logits=row_wise[4],
        batch=Batch(qo_indptr, kv_indptr, kv_indices, last_page_len, row_wise[5], tuple(gaps)),
    )


def _pad_rows(shape: PassShape, placeholders: list[int], ordinals: list[int], logits: list[int]) -> None:
    """Lists of rows as long as the shape's, the last row filling them up."""
    if shape.kind is not PassKind.PLAIN:
        ordinals.extend([0] * (shape.rows - len(placeholders)))
        placeholders.extend([shape.rows - 1] * (shape.rows - len(placeholders)))
    logits.extend([shape.rows - 1] * (shape.rows - len(logits)))


def _span(rows: list[int]) -> slice | None:
    if rows and rows[-1] - rows[0] + 1 == len(rows):
        return slice(rows[0], rows[-1] + 1)
    return None


def _gap(window: Window, group: PlaceholderGroup, row: int, first: int) -> list[Gap]:
    """The keys between a group, which begins at `row` of the pass, and the token that it follows."""
    begin, end = window.start + group.after + 1, window.start + row - first
    return [Gap(row, group.count, begin, end)] if begin < end and group.count else []


def _tensors(
    lists: Sequence[list[int]], dtype: type[np.int64] | type[np.int32], device: torch.device
) -> Sequence[torch.Tensor]:
    """A tensor for each list, cut from one array: converting costs more than what is converted."""
    joined = torch.from_numpy(np.array([value for values in lists for value in values], dtype=dtype))
    return torch.split(joined.to(device, non_blocking=True), [len(values) for values in lists])
