"""Paged attention over ragged windows equals dense attention, one window at a time."""

import functools
import weakref
from collections.abc import Sequence

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prove_core.attention.base import Batch, LayerSpec
from prove_core.attention.fixed_tiles import FixedTileAttention
from prove_core.attention.groups import causal_tail
from prove_core.attention.torch_backend import TorchAttention
from prove_core.kv.storage import KVStorage
from prove_core.model.pack import pack
from prove_core.model.window import Window

BACKENDS = [TorchAttention, FixedTileAttention]
SPECS = [
    LayerSpec(0, 4, 2, 8, 8, 0.35),
    LayerSpec(1, 4, 2, 8, 8, 0.35, window=5),
    LayerSpec(2, 6, 1, 16, 4, 0.2, softcap=2.0),
    LayerSpec(3, 3, 3, 8, 16, 0.3, window=1, softcap=1.5),
]
Sizes = Sequence[tuple[int, int]]


def dense(spec: LayerSpec, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The obvious attention of one window: its queries are the last rows of k, v `[length, heads, dim]`."""
    length, group = len(k), spec.query_heads // spec.kv_heads
    out = q.new_empty(len(q), spec.query_heads, spec.value_dim)
    for i in range(len(q)):
        position = length - len(q) + i
        first = 0 if spec.window is None else max(0, position - spec.window + 1)
        for head in range(spec.query_heads):
            scores = spec.scaling * (k[first : position + 1, head // group] @ q[i, head])
            if spec.softcap is not None:
                scores = spec.softcap * torch.tanh(scores / spec.softcap)
            out[i, head] = torch.softmax(scores, 0) @ v[first : position + 1, head // group]
    return out


def scattered_batch(sizes: Sizes, storage: KVStorage, tile: int, seed: int) -> tuple[list[Window], Batch]:
    """Windows of (cached, rows), their pages drawn at random, and the packed batch."""
    free = torch.randperm(storage.pages, generator=torch.Generator().manual_seed(seed)).tolist()
    windows = []
    for cached, rows in sizes:
        pages = [free.pop() for _ in range(-(-(cached + rows) // storage.page_size) + 1)]  # one page to spare
        windows.append(Window([0] * rows, cached, pages))
    packed = pack(
        windows,
        page_size=storage.page_size,
        scratch_page=storage.scratch_page,
        placeholder_id=0,
        tile=tile,
        device=torch.device("cpu"),
    )
    return windows, packed.batch


@functools.cache
def made(backend_type: type[TorchAttention], page_size: int) -> tuple[KVStorage, TorchAttention]:
    """A storage with a backend over it; making the deterministic one verifies this machine's products, once."""
    storage = KVStorage([s.shape for s in SPECS], pages=700, page_size=page_size, dtype=torch.float32, device="cpu")
    return storage, backend_type(storage, SPECS)


@pytest.mark.parametrize("backend_type", BACKENDS)
@pytest.mark.parametrize("page_size", [1, 3, 16])
@given(
    sizes=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=6),
    padded=st.booleans(),
    seed=st.integers(0, 1000),
)
@example(sizes=[(0, 1)], padded=False, seed=0)
@example(sizes=[(300, 1), (0, 70), (5, 1), (120, 9)], padded=True, seed=1)
@settings(max_examples=15)
def test_equals_dense(
    backend_type: type[TorchAttention], page_size: int, sizes: Sizes, padded: bool, seed: int
) -> None:
    storage, backend = made(backend_type, page_size)
    windows, batch = scattered_batch(sizes, storage, 8 if padded else 1, seed)
    backend.plan(batch)
    generator = torch.Generator().manual_seed(seed)
    rows = len(batch.slots)
    for spec in SPECS:
        keys, values = (tensor.view(-1, *tensor.shape[2:]) for tensor in storage.layers[spec.index])
        keys.normal_(generator=generator)
        values.normal_(generator=generator)
        q = torch.randn(rows, spec.query_heads, spec.head_dim, generator=generator)
        k = torch.randn(rows, spec.kv_heads, spec.head_dim, generator=generator)
        v = torch.randn(rows, spec.kv_heads, spec.value_dim, generator=generator)
        out = backend.attend(spec, q, k, v)
        assert out.shape == (rows, spec.query_heads, spec.value_dim)
        assert out.isfinite().all()
        first = 0
        for window in windows:
            slots = [window.pages[p // page_size] * page_size + p % page_size for p in range(window.length)]
            own = slice(first, first + window.rows)
            assert torch.equal(keys[slots[window.start :]], k[own])
            expected = dense(spec, q[own], keys[slots], values[slots])
            torch.testing.assert_close(out[own], expected, rtol=1e-4, atol=1e-5)
            first += window.rows


def test_writes_nothing_but_its_slots() -> None:
    storage = KVStorage([SPECS[0].shape], pages=8, page_size=4, dtype=torch.float32, device="cpu")
    backend = TorchAttention(storage, SPECS[:1])
    _, batch = scattered_batch([(3, 2), (0, 5)], storage, 4, 0)
    backend.plan(batch)
    ones = torch.ones(len(batch.slots), 4, 8)
    backend.attend(SPECS[0], ones, ones[:, :2], ones[:, :2])
    written = storage.layers[0][0].view(-1, 16).any(-1).nonzero().flatten().tolist()
    assert written == sorted(set(batch.slots.tolist()))


def test_storage_counts_its_bytes() -> None:
    storage = KVStorage([SPECS[2].shape], pages=3, page_size=4, dtype=torch.bfloat16, device="cpu")
    assert storage.bytes == (3 + 1) * 4 * 1 * (16 + 4) * 2


def test_large_masks_are_not_kept() -> None:
    """A prefill chunk of each length, in a long context, would fill gigabytes."""

    def kept(rows: int, length: int) -> bool:
        mask = causal_tail(rows, 5, length, torch.bfloat16, torch.device("cpu"))
        assert mask.shape == (1, 5 * rows, length)
        assert torch.equal(mask[0, :rows, length - rows :] == 0, torch.ones(rows, rows).tril() == 1)
        assert not mask[..., : length - rows].any()
        whole = weakref.ref(mask if mask._base is None else mask._base)
        del mask
        return whole() is not None

    assert kept(24, 1000)
    assert not kept(256, 1000)
    assert not kept(24, 30000)
