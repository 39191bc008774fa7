"""Which shapes of attention products give a row the same bits on this machine."""

from collections.abc import Callable, Sequence

import torch

from prove_core.attention.base import LayerSpec
from prove_core.errors import UnsupportedModel

KEY_TILE = 128
_ROW_TILES: tuple[int, ...] = (64, 16, 4)
_COUNTS: tuple[int, ...] = (1, 2, 4, 8, 16)

Product = Callable[[int, int], torch.Tensor]


def verified_shapes(
    specs: Sequence[LayerSpec], dtype: torch.dtype, device: torch.device
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Row tiles (descending) and counts of tiles (ascending) whose products agree bit for bit with the smallest ones.

    Raises `UnsupportedModel` where even the smallest depends on a row's place in its tile.
    """
    row_tiles, counts = _ROW_TILES, _COUNTS
    for shape in {(s.query_heads // s.kv_heads, s.kv_heads, s.head_dim, s.value_dim) for s in specs}:
        for product in _products(*shape, dtype, device):
            base = product(_ROW_TILES[-1], 1)
            rolled = product(-_ROW_TILES[-1], 1)
            if not torch.equal(base, rolled):
                raise UnsupportedModel(
                    f"deterministic: this machine's {dtype} attention products depend on a row's place in its tile;"
                    " turn `deterministic` off or use another dtype"
                )
            row_tiles = tuple(rows for rows in row_tiles if torch.equal(product(rows, 1), base))
            counts = tuple(n for n in counts if all(torch.equal(product(rows, n), base) for rows in row_tiles))
    return row_tiles, counts


def _products(
    per_kv: int, kv_heads: int, head_dim: int, value_dim: int, dtype: torch.dtype, device: torch.device
) -> list[Product]:
    """Scores (q by a tile of keys) and outputs (probabilities by a tile of values) of random rows."""
    return [
        _product(per_kv, kv_heads, (head_dim, KEY_TILE), dtype, device, transposed=True),
        _product(per_kv, kv_heads, (KEY_TILE, value_dim), dtype, device, transposed=False),
    ]


def _product(
    per_kv: int,
    kv_heads: int,
    shape: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
    *,
    transposed: bool,
) -> Product:
    """A function of (rows per tile, tiles at once) that multiplies the same rows, tile by tile.

    Negative rows: every row sits one place further in its tile (the last one first).
    """
    inner, outer = shape
    total, batch = _ROW_TILES[0], _COUNTS[-1]
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(batch, kv_heads, per_kv, total, inner, generator=generator).to(device, dtype)
    size = (batch * kv_heads, outer, inner) if transposed else (batch * kv_heads, inner, outer)
    right = torch.randn(size, generator=generator).to(device, dtype)

    def run(rows: int, count: int) -> torch.Tensor:
        out = torch.empty(batch, kv_heads, per_kv, total, outer, dtype=dtype, device=device)
        order = torch.arange(total).view(-1, abs(rows))
        for index in order.roll(1, dims=1) if rows < 0 else order:
            for first in range(0, batch, count):
                a = left[first : first + count, :, :, index].reshape(count * kv_heads, -1, inner)
                b = right[first * kv_heads : (first + count) * kv_heads]
                result = torch.bmm(a, b.transpose(1, 2) if transposed else b)
                out[first : first + count, :, :, index] = result.view(count, kv_heads, per_kv, -1, outer)
        return out

    return run
