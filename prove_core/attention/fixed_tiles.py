"""Attention whose result for a row doesn't depend on what else is in the pass, bit for bit."""

from collections import defaultdict
from collections.abc import Sequence

import torch

from prove_core.attention.base import Batch, LayerSpec
from prove_core.attention.groups import Group, Span, apart, build_group, by_size, windows_of
from prove_core.attention.pieces import in_pieces
from prove_core.attention.tile_check import KEY_TILE, verified_shapes
from prove_core.attention.torch_backend import TorchAttention
from prove_core.kv.storage import KVStorage


class FixedTileAttention(TorchAttention):
    """Every product has one of a few shapes, verified at construction to give a row the same bits as any other.

    Queries come in tiles of a few sizes, a few tiles at once; keys in tiles of `KEY_TILE` positions counted from the
    sequence's start, whose contributions are added one after another. Keys a row doesn't see add exact zeros; those of
    a gap are left out, so that a row behind it has the bits that it would have without.
    Raises `UnsupportedModel` where this machine's kernels have no such shapes.
    """

    def __init__(self, storage: KVStorage, specs: Sequence[LayerSpec]) -> None:
        super().__init__(storage, specs)
        self._row_tiles, self._counts = verified_shapes(specs, storage.dtype, storage.device)

    def _group(self, batch: Batch) -> list[Group]:
        page_size, scratch = self._storage.page_size, self._storage.scratch_page
        tiled: defaultdict[int, list[Span]] = defaultdict(list)
        for window in windows_of(batch, page_size):
            for part in apart(window, batch.gaps):
                for rows, span in _tiles(part, self._row_tiles):
                    tiled[rows].append(span)
        return [
            build_group(batch, part, rows=rows, length=_round_up(part), page_size=page_size, scratch_page=scratch)
            for rows, spans in tiled.items()
            for alike in by_size(spans)
            for part in _parts(alike, self._counts)
        ]

    def _attend_group(self, group: Group, spec: LayerSpec, q: torch.Tensor) -> torch.Tensor:
        k, v = self._gather(group, spec, tile=KEY_TILE)
        q = q.view(k.shape[1], -1, spec.head_dim)
        scores = torch.cat([torch.bmm(q, tile.transpose(1, 2)) for tile in k], -1) * spec.scaling
        if spec.softcap is not None:
            scores = in_pieces(torch.tanh, scores / spec.softcap) * spec.softcap
        mask = self._mask(group, spec)
        if mask is not None:
            scores = scores + mask
        tiles = torch.softmax(scores, -1).view(*scores.shape[:2], -1, KEY_TILE).movedim(2, 0).contiguous()
        out = torch.bmm(tiles[0], v[0]).float()
        for p, values in zip(tiles[1:], v[1:], strict=True):
            out += torch.bmm(p, values)
        return out.to(q.dtype).view(-1, spec.value_dim)


def _tiles(window: Span, sizes: Sequence[int]) -> list[tuple[int, Span]]:
    """Cut a window into tiles of the given sizes (descending), each with its size; the last one may be part empty."""
    tiles = []
    done = 0
    while done < window.rows:
        rest = window.rows - done
        size = next((size for size in sizes if size <= rest), sizes[-1])
        count = min(size, rest)
        seen = window.seen - window.rows + done + count
        tiles.append((size, window._replace(start=window.start + done, rows=count, seen=seen)))
        done += count
    return tiles


def _parts(spans: list[Span], counts: Sequence[int]) -> list[list[Span]]:
    """Split into parts of verified counts (ascending); the last part repeats its last span up to the next count."""
    largest = counts[-1]
    parts = [spans[i : i + largest] for i in range(0, len(spans), largest)]
    size = next(count for count in counts if count >= len(parts[-1]))
    parts[-1] = parts[-1] + [parts[-1][-1]] * (size - len(parts[-1]))
    return parts


def _round_up(spans: Sequence[Span]) -> int:
    """Whole key tiles that cover every span."""
    return -(-max(span.seen for span in spans) // KEY_TILE) * KEY_TILE
