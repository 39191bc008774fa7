"""FlashInfer's kernels against the torch backend, on the card."""

from typing import Any

import pytest
import torch

from prove_core.attention.base import LayerSpec
from prove_core.attention.choose import choose_attention, tried
from prove_core.attention.flashinfer_backend import FlashInferAttention
from prove_core.attention.self_check import check_rows_alone
from prove_core.kv.storage import KVStorage
from tests.core.attention.test_flashinfer import Shape, compare, packed, windows_of

SHAPES: dict[str, list[Shape]] = {
    "one row": [(300, 1, ())],
    "rows": [(30, 1, ()), (0, 1, ()), (700, 1, ())],
    "chains": [(20, 9, ()), (0, 7, ()), (0, 120, ()), (1000, 2, ())],
    "trees": [(20, 5, (3, 0, 2)), (700, 1, (4,)), (0, 9, (1, 1, 1)), (30, 1, ())],
}


def specs_of(per_kv: int, head_dim: int) -> list[LayerSpec]:
    scale = head_dim**-0.5
    return [
        LayerSpec(0, 2 * per_kv, 2, head_dim, head_dim, scale),
        LayerSpec(1, 2 * per_kv, 2, head_dim, head_dim, scale, window=16),
        LayerSpec(2, 2 * per_kv, 2, head_dim, head_dim, scale, softcap=20.0),
    ]


def storage_of(specs: list[LayerSpec], page_size: int, dtype: torch.dtype = torch.bfloat16) -> KVStorage:
    pages = 6000 // page_size
    return KVStorage([s.shape for s in specs], pages=pages, page_size=page_size, dtype=dtype, device="cuda")


@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("per_kv", [1, 3, 4, 7])
def test_equals_torch(flashinfer: Any, per_kv: int, head_dim: int, page_size: int, shapes: list[Shape]) -> None:
    specs = specs_of(per_kv, head_dim)
    storage = storage_of(specs, page_size)
    backend = FlashInferAttention(storage, specs, flashinfer)
    for tile in (1, 8):
        compare(storage, backend, specs, packed(windows_of(shapes, storage, 0), storage, tile))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_every_head_size_and_dtype(flashinfer: Any, head_dim: int, dtype: torch.dtype) -> None:
    specs = specs_of(4, head_dim)
    storage = storage_of(specs, 16, dtype)
    backend = FlashInferAttention(storage, specs, flashinfer)
    for shapes in SHAPES.values():
        compare(storage, backend, specs, packed(windows_of(shapes, storage, 0), storage, 1))


@pytest.mark.parametrize("per_kv", [1, 4, 7])
def test_deterministic_rows_do_not_depend_on_company(flashinfer: Any, per_kv: int) -> None:
    specs = specs_of(per_kv, 128)
    storage = storage_of(specs, 16)
    backend = FlashInferAttention(storage, specs, flashinfer, deterministic=True)
    check_rows_alone(backend, storage, specs)
    for shapes in SHAPES.values():
        compare(storage, backend, specs, packed(windows_of(shapes, storage, 0), storage, 8))


@pytest.mark.parametrize("deterministic", [False, True])
def test_is_chosen(flashinfer: Any, deterministic: bool) -> None:
    specs = specs_of(4, 128)
    storage = storage_of(specs, 16)
    backend = choose_attention("auto", storage, specs, deterministic=deterministic, load=lambda: flashinfer)
    assert isinstance(backend, FlashInferAttention)
    assert tried(backend, storage, specs) is backend
