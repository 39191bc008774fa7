"""Which attention backend serves a model on its device."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from prove_core.attention.base import AttentionBackend, LayerSpec
from prove_core.attention.fixed_tiles import FixedTileAttention
from prove_core.attention.flashinfer_backend import FlashInferAttention
from prove_core.attention.flashinfer_support import import_flashinfer, unsupported
from prove_core.attention.self_check import check_rows_alone, check_values
from prove_core.attention.torch_backend import TorchAttention
from prove_core.config import AttentionChoice
from prove_core.errors import UnsupportedModel
from prove_core.kv.storage import KVStorage

logger = logging.getLogger(__name__)


def choose_attention(
    choice: AttentionChoice,
    storage: KVStorage,
    specs: Sequence[LayerSpec],
    *,
    deterministic: bool,
    load: Callable[[], Any] = import_flashinfer,
) -> AttentionBackend:
    """The backend that `choice` names; `auto`: FlashInfer on a CUDA device that can run it, else torch, saying why.

    A backend of FlashInfer has passed a trial over `storage`, whose contents are garbage then. Raises
    `UnsupportedModel` where `flashinfer` cannot be had.
    """
    if choice == "torch" or (choice == "auto" and storage.device.type != "cuda"):
        return _torch(storage, specs, deterministic)
    try:
        return _flashinfer(storage, specs, deterministic, load)
    except UnsupportedModel as error:
        if choice == "flashinfer":
            raise
        logger.warning("attention by torch instead of FlashInfer: %s", error)
        return _torch(storage, specs, deterministic)


def _torch(storage: KVStorage, specs: Sequence[LayerSpec], deterministic: bool) -> AttentionBackend:
    return FixedTileAttention(storage, specs) if deterministic else TorchAttention(storage, specs)


def _flashinfer(
    storage: KVStorage, specs: Sequence[LayerSpec], deterministic: bool, load: Callable[[], Any]
) -> FlashInferAttention:
    device = storage.device
    if device.type != "cuda":
        raise UnsupportedModel(f"FlashInfer needs a CUDA device, and the model is on {device}")
    if device.index:
        raise UnsupportedModel(f"FlashInfer runs on a process's first card, not {device}: set CUDA_VISIBLE_DEVICES")
    why = unsupported(
        specs, storage.dtype, torch.cuda.get_device_capability(device), torch.cuda.get_device_name(device)
    )
    if why is not None:
        raise UnsupportedModel(f"FlashInfer cannot serve this model: {why}")
    try:
        package = load()
    except ImportError as error:
        raise UnsupportedModel(f"FlashInfer is not installed ({error}): pip install -e '.[gpu]'") from error
    try:
        return tried(FlashInferAttention(storage, specs, package, deterministic=deterministic), storage, specs)
    except UnsupportedModel:
        raise
    except Exception as error:  # kernels are compiled at their first use, by a compiler that may not be there
        raise UnsupportedModel(f"FlashInfer's kernels do not run here: {str(error).strip()[:300]}") from error


def tried(backend: FlashInferAttention, storage: KVStorage, specs: Sequence[LayerSpec]) -> FlashInferAttention:
    """`backend` after a trial: as torch's, and in deterministic mode with bits that do not depend on other rows.

    Raises `UnsupportedModel`.
    """
    logger.info("trying FlashInfer's kernels; the first time they are compiled, which takes minutes")
    check_values(backend, TorchAttention(storage, specs), storage, specs)
    if backend.deterministic:
        check_rows_alone(backend, storage, specs)
    return backend
