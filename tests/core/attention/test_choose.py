"""Which backend serves, and the trials that FlashInfer's kernels have to pass before they do."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

from prove_core.attention.base import Batch, LayerSpec
from prove_core.attention.choose import choose_attention, tried
from prove_core.attention.fixed_tiles import FixedTileAttention
from prove_core.attention.flashinfer_backend import FlashInferAttention
from prove_core.attention.torch_backend import TorchAttention
from prove_core.errors import UnsupportedModel
from prove_core.kv.storage import KVStorage
from tests import flashinfer_reference

SPECS = [LayerSpec(0, 4, 1, 64, 64, 0.125), LayerSpec(1, 4, 1, 64, 64, 0.125, window=6, softcap=2.0)]


def storage_of(pages: int, page_size: int = 16, dtype: torch.dtype = torch.bfloat16) -> KVStorage:
    return KVStorage([s.shape for s in SPECS], pages=pages, page_size=page_size, dtype=dtype, device="cpu")


def test_torch_on_the_cpu() -> None:
    storage = storage_of(4, dtype=torch.float32)
    assert type(choose_attention("auto", storage, SPECS, deterministic=False)) is TorchAttention
    assert type(choose_attention("torch", storage, SPECS, deterministic=True)) is FixedTileAttention
    with pytest.raises(UnsupportedModel, match="needs a CUDA device"):
        choose_attention("flashinfer", storage, SPECS, deterministic=False)
    storage.device = torch.device("cuda:1")
    with pytest.raises(UnsupportedModel, match="first card, not cuda:1: set CUDA_VISIBLE_DEVICES"):
        choose_attention("flashinfer", storage, SPECS, deterministic=False)


class OnCuda(KVStorage):
    """A storage that says it is on a CUDA device."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda")

    @device.setter
    def device(self, _: torch.device) -> None:
        pass


def missing() -> Any:
    raise ImportError("No module named 'flashinfer'")


@pytest.mark.parametrize(
    ("capability", "load", "why"),
    [
        ((7, 5), missing, "Some card has compute capability 7.5"),
        ((9, 0), missing, r"not installed .*'flashinfer'.*pip install -e '.\[gpu\]'"),
        ((9, 0), object, "kernels do not run here"),
    ],
)
def test_says_why_not_flashinfer(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capability: tuple[int, int],
    load: Callable[[], Any],
    why: str,
) -> None:
    storage = OnCuda([s.shape for s in SPECS], pages=4, page_size=16, dtype=torch.bfloat16, device="cpu")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some card")
    with pytest.raises(UnsupportedModel, match=why):
        choose_attention("flashinfer", storage, SPECS, deterministic=False, load=load)
    with caplog.at_level(logging.WARNING):
        assert type(choose_attention("auto", storage, SPECS, deterministic=False, load=load)) is TorchAttention
    assert len(caplog.records) == 1
    assert "attention by torch instead of FlashInfer" in caplog.text


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(("pages", "page_size"), [(1, 1), (2, 16), (3, 1), (40, 16)])
def test_kernels_that_are_right_pass_the_trial(pages: int, page_size: int, deterministic: bool) -> None:
    storage = storage_of(pages, page_size)
    backend = FlashInferAttention(storage, SPECS, flashinfer_reference, deterministic=deterministic)
    assert tried(backend, storage, SPECS) is backend


class Wrong(FlashInferAttention):
    """Adds to what it computes, as a kernel with a fault might: `fault` sees the pass and the spec."""

    fault: Callable[[Batch, LayerSpec], float]

    def plan(self, batch: Batch) -> None:
        self.batch = batch
        super().plan(batch)

    def attend(self, spec: LayerSpec, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return super().attend(spec, q, k, v) + self.fault(self.batch, spec)


@pytest.mark.parametrize(
    "fault",
    [
        lambda batch, spec: 1.0 if batch.gaps else 0.0,
        lambda batch, spec: 1.0 if spec.window else 0.0,
        lambda batch, spec: 1.0 if len(batch.slots) == 1 else 0.0,
        lambda batch, spec: float("nan"),
    ],
)
def test_wrong_values_are_found(fault: Callable[[Batch, LayerSpec], float]) -> None:
    storage = storage_of(8)
    backend = Wrong(storage, SPECS, flashinfer_reference)
    backend.fault = fault
    with pytest.raises(UnsupportedModel, match=r"computes layer [01] otherwise"):
        tried(backend, storage, SPECS)


@pytest.mark.parametrize(
    "fault",
    [
        lambda batch, spec: 0.02 * (len(batch.slots) == 1),
        lambda batch, spec: 0.02 * (len(batch.kv_last_page_len) > 1),
    ],
)
def test_bits_that_depend_on_company_are_found(fault: Callable[[Batch, LayerSpec], float]) -> None:
    storage = storage_of(40)
    backend = Wrong(storage, SPECS, flashinfer_reference, deterministic=True)
    backend.fault = fault
    with pytest.raises(UnsupportedModel, match="depends on other rows"):
        tried(backend, storage, SPECS)
