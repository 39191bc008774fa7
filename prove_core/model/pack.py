"""Windows into the ragged rows of one pass: in lists, and in tensors."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from prove_core.attention.base import Batch, Gap
from prove_core.model.shapes import PassKind, PassShape
from prove_core.model.sides import placed
from prove_core.model.window import SidePath, Window


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


@dataclass(slots=True)
class Layout:
    """The same in lists, window after window and without padding, named as in `Packed` and `Batch`.

    A gap may begin before the position of its first row: the rows see the keys from there to that position all the
    same, behind the gap, in the place of those there.
    """

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    placeholders: list[int] = field(default_factory=list)
    ordinals: list[int] = field(default_factory=list)
    logits: list[int] = field(default_factory=list)
    qo_indptr: list[int] = field(default_factory=lambda: [0])
    kv_indptr: list[int] = field(default_factory=lambda: [0])
    kv_indices: list[int] = field(default_factory=list)
    last_page_len: list[int] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


def lay_out(windows: Sequence[Window], *, page_size: int, placeholder_id: int, in_pairs: bool = False) -> Layout:
    """Lay the windows' rows out one after another, their keys too; those of side paths `in_pairs`: see `placed`."""
    layout = Layout()
    ids, positions, slots, logits = layout.ids, layout.positions, layout.slots, layout.logits
    for window in windows:
        length = window.end
        places = list(range(window.start, length))
        ids.extend(window.tokens)
        positions.extend(places)
        for part, at, again in placed(window, in_pairs=in_pairs):
            row, count, follows = len(ids), part.count, window.follows(part)
            length = at + count
            places.extend(range(at, length))
            positions.extend(range(follows, follows + count))
            if follows < at and count:
                layout.gaps.append(Gap(row, count, follows - again, at - again))
            if isinstance(part, SidePath):
                ids.extend(part.tokens)
            else:
                layout.placeholders.extend(range(row, row + count))
                layout.ordinals.extend(range(count))
                ids.extend([placeholder_id] * count)
        table = window.pages[: -(-length // page_size)]
        slots.extend([table[p // page_size] * page_size + p % page_size for p in places])
        layout.kv_indices.extend(table)
        rows = len(ids)
        logits.extend(range(rows - window.outputs, rows))
        layout.qo_indptr.append(rows)
        layout.kv_indptr.append(len(layout.kv_indices))
        layout.last_page_len.append((length - 1) % page_size + 1)
    return layout


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
    """The windows' layout in tensors, padded to a multiple of `tile` rows.

    With a `shape`, which must hold the windows: padded to exactly its rows, placeholders (where it has some) and rows
    with logits, and its windows and one more. The windows that are missing have no rows, the last one all padding.
    """
    layout = lay_out(windows, page_size=page_size, placeholder_id=placeholder_id)
    logits, rows = layout.logits, len(layout.ids)
    padding = -rows % tile if shape is None else shape.rows - rows
    if shape is None:
        logits.extend(logits[-1:] * (-len(logits) % tile))
    else:
        _pad_rows(shape, layout.placeholders, layout.ordinals, logits)
        for count in [0] * (shape.windows - len(windows)) + [padding]:
            layout.kv_indices.extend([scratch_page] * max(1, -(-count // page_size)))
            layout.qo_indptr.append(layout.qo_indptr[-1] + count)
            layout.kv_indptr.append(len(layout.kv_indices))
            layout.last_page_len.append((count - 1) % page_size + 1 if count else 1)
    layout.ids.extend([0] * padding)
    layout.positions.extend([0] * padding)
    layout.slots.extend([scratch_page * page_size] * padding)
    return _packed(layout, device, _span(layout.placeholders) if shape is None else None)


def _packed(layout: Layout, device: torch.device, span: slice | None) -> Packed:
    pages = layout.qo_indptr, layout.kv_indptr, layout.kv_indices, layout.last_page_len
    rows = layout.ids, layout.positions, layout.placeholders, layout.ordinals, layout.logits, layout.slots
    qo_indptr, kv_indptr, kv_indices, last_page_len = _tensors(pages, np.int32, torch.device("cpu"))
    ids, positions, placeholders, ordinals, logits, slots = _tensors(rows, np.int64, device)
    return Packed(
        ids=ids[None],
        positions=positions[None],
        placeholders=placeholders,
        span=span,
        ordinals=ordinals,
        logits=logits,
        batch=Batch(qo_indptr, kv_indptr, kv_indices, last_page_len, slots, tuple(layout.gaps)),
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


def _tensors(
    lists: Sequence[list[int]], dtype: type[np.int64] | type[np.int32], device: torch.device
) -> Sequence[torch.Tensor]:
    """A tensor for each list, cut from one array: converting costs more than what is converted."""
    joined = torch.from_numpy(np.array([value for values in lists for value in values], dtype=dtype))
    return torch.split(joined.to(device, non_blocking=True), [len(values) for values in lists])
