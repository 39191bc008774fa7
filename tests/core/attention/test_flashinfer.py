"""The FlashInfer backend, run against a strict reference of its API, equals the torch backend."""

import functools
from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from prove_core.attention.base import Batch, Gap, LayerSpec
from prove_core.attention.flashinfer_backend import FlashInferAttention
from prove_core.attention.flashinfer_support import unsupported
from prove_core.attention.torch_backend import TorchAttention
from prove_core.kv.storage import KVStorage
from prove_core.model.pack import pack
from prove_core.model.window import PlaceholderGroup, Window
from tests import flashinfer_reference

# heads per KV head 1, 2, 3, 5, 7; the decode kernel serves the first model, the prefill kernel the second
MODELS = {
    "few heads": [
        LayerSpec(0, 4, 2, 64, 64, 0.125),
        LayerSpec(1, 3, 1, 64, 64, 0.1, window=5),
        LayerSpec(2, 2, 2, 128, 128, 0.09, softcap=3.0),
    ],
    "many heads": [
        LayerSpec(0, 5, 1, 128, 128, 0.09),
        LayerSpec(1, 7, 1, 64, 64, 0.1, window=6, softcap=2.0),
        LayerSpec(2, 7, 1, 64, 64, 0.1, softcap=2.0),
    ],
}
Shape = tuple[int, int, tuple[int, ...]]  # cached keys, tokens, sizes of the groups behind the last tokens


@functools.cache
def made(model: str, page_size: int, deterministic: bool) -> tuple[KVStorage, FlashInferAttention]:
    specs = MODELS[model]
    storage = KVStorage([s.shape for s in specs], pages=400, page_size=page_size, dtype=torch.bfloat16, device="cpu")
    return storage, FlashInferAttention(storage, specs, flashinfer_reference, deterministic=deterministic)


def windows_of(shapes: Sequence[Shape], storage: KVStorage, seed: int) -> list[Window]:
    free = torch.randperm(storage.pages, generator=torch.Generator().manual_seed(seed)).tolist()
    windows = []
    for cached, tokens, sizes in shapes:
        groups = sizes[:tokens]
        behind = [PlaceholderGroup(tokens - len(groups) + i, count) for i, count in enumerate(groups)]
        pages = [free.pop() for _ in range(-(-(cached + tokens + sum(groups)) // storage.page_size))]
        windows.append(Window([0] * tokens, cached, pages, tuple(behind), logits=tokens))
    return windows


def packed(windows: Sequence[Window], storage: KVStorage, tile: int) -> Batch:
    return pack(
        windows,
        page_size=storage.page_size,
        scratch_page=storage.scratch_page,
        placeholder_id=0,
        tile=tile,
        device=storage.device,
    ).batch


def compare(storage: KVStorage, backend: FlashInferAttention, specs: Sequence[LayerSpec], batch: Batch) -> None:
    """Both backends over the same 16-bit numbers; the torch one computes in float32."""
    wide = KVStorage(
        [s.shape for s in specs],
        pages=storage.pages,
        page_size=storage.page_size,
        dtype=torch.float32,
        device=storage.device,
    )
    generator = torch.Generator(storage.device).manual_seed(len(batch.slots))
    for pair, copies in zip(storage.layers, wide.layers, strict=True):
        for tensor, copy in zip(pair, copies, strict=True):
            copy.copy_(tensor.normal_(generator=generator))
    expected = TorchAttention(wide, specs)
    backend.plan(batch)
    expected.plan(batch)
    rows = len(batch.slots)
    for spec in specs:
        q, k, v = (
            torch.randn(heads, rows, spec.head_dim, generator=generator, device=storage.device)
            .to(storage.dtype)
            .transpose(0, 1)
            for heads in (spec.query_heads, spec.kv_heads, spec.kv_heads)
        )
        out = backend.attend(spec, q, k, v)
        assert out.dtype is storage.dtype
        assert out.isfinite().all()
        own = slice(int(batch.qo_indptr[-1]))
        torch.testing.assert_close(
            out[own].float(), expected.attend(spec, q.float(), k.float(), v.float())[own], rtol=1e-2, atol=1e-2
        )
        for tensor, copy in zip(storage.layers[spec.index], wide.layers[spec.index], strict=True):
            assert torch.equal(tensor.float(), copy)


SHAPES = st.tuples(st.integers(0, 40), st.integers(1, 9), st.lists(st.integers(0, 4), max_size=4).map(tuple))


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("model", MODELS)
@given(shapes=st.lists(SHAPES, min_size=1, max_size=4), padded=st.booleans(), seed=st.integers(0, 1000))
@example(shapes=[(0, 1, ())], padded=False, seed=0)
@example(shapes=[(30, 1, ()), (0, 1, ()), (17, 1, ())], padded=True, seed=0)
@example(shapes=[(20, 5, (3, 0, 2)), (7, 1, (4,)), (0, 9, ()), (30, 1, ())], padded=True, seed=1)
@settings(max_examples=12, deadline=None)
def test_equals_torch_attention(
    model: str, page_size: int, deterministic: bool, shapes: Sequence[Shape], padded: bool, seed: int
) -> None:
    storage, backend = made(model, page_size, deterministic)
    batch = packed(windows_of(shapes, storage, seed), storage, 8 if padded else 1)
    compare(storage, backend, MODELS[model], batch)


def test_several_gaps_of_one_row() -> None:
    """A packed window never has them, the format does."""
    storage, backend = made("few heads", 16, False)
    batch = packed(windows_of([(20, 6, ()), (3, 4, ())], storage, 0), storage, 1)
    gaps = (Gap(2, 3, 1, 4), Gap(4, 2, 6, 10), Gap(9, 1, 0, 2))
    batch = Batch(batch.qo_indptr, batch.kv_indptr, batch.kv_indices, batch.kv_last_page_len, batch.slots, gaps)
    compare(storage, backend, MODELS["few heads"], batch)


def test_layers_alike_share_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planned once per pass and kind of layer, not once per layer."""
    plans: list[int] = []
    wrapper = flashinfer_reference.BatchPrefillWithPagedKVCacheWrapper
    original = wrapper.plan
    monkeypatch.setattr(
        wrapper, "plan", lambda self, *args, **options: (plans.append(id(self)), original(self, *args, **options))
    )
    made: list[int] = []
    make = wrapper.__init__
    monkeypatch.setattr(
        wrapper, "__init__", lambda self, *args, **options: (made.append(id(self)), make(self, *args, **options))[1]
    )
    specs = [LayerSpec(i, 5, 1, 64, 64, 0.1, window=None if i % 3 else 4) for i in range(6)]
    storage = KVStorage([s.shape for s in specs], pages=8, page_size=4, dtype=torch.float16, device="cpu")
    backend = FlashInferAttention(storage, specs, flashinfer_reference)
    batch = packed(windows_of([(3, 2, ()), (0, 4, ())], storage, 0), storage, 1)
    backend.plan(batch)
    for spec in specs:
        q, k = (torch.ones(6, heads, 64, dtype=torch.float16) for heads in (5, 1))
        backend.attend(spec, q, k, k)
    assert len(plans) == len(set(plans)) == 2
    assert len(made) == 2, "wrappers hold megabytes each"


def test_says_what_it_cannot_serve() -> None:
    good = LayerSpec(0, 4, 2, 128, 128, 0.1)
    bf16 = torch.bfloat16
    assert unsupported([good], bf16, (9, 0)) is None
    assert unsupported([good], torch.float16, (8, 0)) is None
    assert "compute capability 7.5" in str(unsupported([good], bf16, (7, 5)))
    assert "float32" in str(unsupported([good], torch.float32, (9, 0)))
    assert "not 80 (layer 3)" in str(unsupported([good, LayerSpec(3, 4, 2, 80, 80, 0.1)], bf16, (9, 0)))
    assert "values of 64" in str(unsupported([LayerSpec(0, 4, 2, 128, 64, 0.1)], bf16, (9, 0)))
    assert "unevenly" in str(unsupported([LayerSpec(0, 5, 2, 64, 64, 0.1)], bf16, (9, 0)))


def test_deterministic_rows_are_requests() -> None:
    """What a row is given does not depend on the window it came in."""
    storage, backend = made("many heads", 16, True)
    asked: list[tuple[list[int], list[int]]] = []
    for rows, cached in ((1, 20), (5, 16)):
        batch = packed(windows_of([(cached, rows, ())], storage, 0), storage, 1)
        wrapper = next(iter(backend._prefill.values()))
        backend.plan(batch)
        sizes = [end - begin for begin, end in pairwise(wrapper._buffers["kv_indptr"].tolist())]
        asked.append((sizes, wrapper._buffers["last"].tolist()))
        assert wrapper._buffers["qo_indptr"].tolist() == list(range(rows + 1))
    assert (asked[0][0][-1], asked[0][1][-1]) == (asked[1][0][-1], asked[1][1][-1])
