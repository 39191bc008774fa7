"""The reference against the package itself, where it is installed: signatures, and the Python around its kernels."""

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from prove_core.attention.flashinfer_backend import FlashInferAttention
from prove_core.kv.storage import KVStorage
from tests import flashinfer_reference
from tests.core.attention.test_flashinfer import MODELS, compare, packed, windows_of
from tests.flashinfer_reference.attend import attend

flashinfer = pytest.importorskip("flashinfer", reason="flashinfer-python is not installed", exc_type=ImportError)
prefill = pytest.importorskip("flashinfer.prefill", exc_type=ImportError)
decode = pytest.importorskip("flashinfer.decode", exc_type=ImportError)

FUNCTIONS = [
    "append_paged_kv_cache",
    "norm.rmsnorm",
    "norm.gemma_rmsnorm",
    "activation.silu_and_mul",
    "activation.gelu_tanh_and_mul",
    "activation.gelu_and_mul",
    "sampling.softmax",
    *(f"BatchPrefillWithPagedKVCacheWrapper.{name}" for name in ("__init__", "plan", "run", "reset_workspace_buffer")),
    *(f"BatchDecodeWithPagedKVCacheWrapper.{name}" for name in ("__init__", "plan", "reset_workspace_buffer")),
]


def parameters(module: Any, path: str) -> list[tuple[str, Any, Any]]:
    for name in path.split("."):
        module = getattr(module, name)
    return [(p.name, p.kind, p.default) for p in inspect.signature(module).parameters.values()]


@pytest.mark.parametrize("path", FUNCTIONS)
def test_signatures(path: str) -> None:
    assert parameters(flashinfer_reference, path) == parameters(flashinfer, path)


@pytest.fixture
def without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's wrappers on the CPU: what they hand to the kernels goes to the reference's instead."""
    plain_empty = torch.empty

    def unpinned(*sizes: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        return plain_empty(*sizes, **options)

    monkeypatch.setattr(torch, "empty", unpinned)
    monkeypatch.setattr(prefill, "device_support_pdl", lambda _: False)
    monkeypatch.setattr(prefill, "segment_packbits", segment_packbits)
    monkeypatch.setattr(prefill, "get_batch_prefill_module", lambda *_: SimpleNamespace(plan=plan, paged_run=paged_run))
    monkeypatch.setattr(decode, "device_support_pdl", lambda _: False)
    monkeypatch.setattr(
        decode, "get_batch_decode_module", lambda *_: SimpleNamespace(plan=lambda *_: [0], run=decode_run)
    )
    monkeypatch.setattr(flashinfer, "append_paged_kv_cache", flashinfer_reference.append_paged_kv_cache)


def segment_packbits(x: torch.Tensor, indptr: torch.Tensor, bitorder: str) -> tuple[torch.Tensor, torch.Tensor]:
    parts = [np.packbits(part.numpy(), bitorder=bitorder) for part in torch.split(x, indptr.diff().tolist())]
    return torch.from_numpy(np.concatenate(parts)), torch.from_numpy(np.cumsum([0, *map(len, parts)])).to(indptr.dtype)


def plan(*arguments: Any) -> list[Any]:
    """As the planner sees them: lengths must agree."""
    _, _, _, qo_indptr, kv_indptr, kv_lens, total_rows, batch_size = arguments[:8]
    assert len(qo_indptr) == len(kv_indptr) == batch_size + 1 == len(kv_lens) + 1
    assert int(qo_indptr[-1]) <= total_rows
    return [0]


def paged_run(*arguments: Any) -> None:
    _, _, _, q, keys, values, qo_indptr, kv_indptr, indices, last, out, _, mode, layout, window_left = arguments[:15]
    _, mask, mask_indptr, _, _, _, _, cap, scale = arguments[15:24]
    assert (layout, mode) == (0, 2 if mask is not None else 1)
    none = torch.empty(0, dtype=torch.uint8), torch.empty(0, dtype=torch.int32)
    masks = none if mask is None else (mask, mask_indptr)
    attend(out, q, keys, values, qo_indptr, kv_indptr, indices, last, *masks, scale, window_left, cap)


def decode_run(*arguments: Any) -> None:
    _, _, _, q, keys, values, kv_indptr, indices, last, out, _, layout, window_left, _ = arguments[:14]
    _, cap, scale = arguments[14:17]
    assert layout == 0
    none = torch.empty(0, dtype=torch.uint8), torch.empty(0, dtype=torch.int32)
    rows = torch.arange(len(kv_indptr), dtype=torch.int32)
    attend(out, q, keys, values, rows, kv_indptr, indices, last, *none, scale, window_left, cap)


@pytest.mark.usefixtures("without_kernels")
def test_the_decode_kernel_is_given_the_same() -> None:
    specs = MODELS["few heads"]
    storage = KVStorage([s.shape for s in specs], pages=40, page_size=16, dtype=torch.bfloat16, device="cpu")
    backend = FlashInferAttention(storage, specs, flashinfer)
    for tile in (1, 8):
        compare(storage, backend, specs, packed(windows_of([(20, 1, ()), (0, 1, ())], storage, 0), storage, tile))


@pytest.mark.usefixtures("without_kernels")
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("shapes", [[(20, 3, ()), (0, 7, ())], [(20, 5, (3, 0, 2)), (7, 1, (4,)), (30, 1, ())]])
def test_the_package_does_as_the_reference(shapes: list[Any], deterministic: bool) -> None:
    specs = MODELS["many heads"]
    storage = KVStorage([s.shape for s in specs], pages=40, page_size=16, dtype=torch.bfloat16, device="cpu")
    backend = FlashInferAttention(storage, specs, flashinfer, deterministic=deterministic)
    for tile in (1, 8):
        compare(storage, backend, specs, packed(windows_of(shapes, storage, 0), storage, tile))
