"""Whether a model's passes run in compiled code: where they can, and agree with the model's own."""

import logging
from collections.abc import Sequence
from typing import Literal

import torch
from torch import nn
from transformers import PreTrainedModel

from prove_core.attention.base import LayerSpec
from prove_core.errors import UnsupportedModel
from prove_core.kv.storage import KVStorage
from prove_core.model.cache import home
from prove_core.model.native.check import disagreement
from prove_core.model.native.forward import NativeForward
from prove_core.model.native.library import NoLibrary
from prove_core.model.native.structure import NotSupported, parts
from prove_core.model.rows import RowMask

logger = logging.getLogger(__name__)

Kernels = Literal["auto", "native", "torch"]

_FURTHEST = 0.05  # of logits, relative; rounding in bfloat16 comes to about 0.01


def native_forward(
    model: PreTrainedModel, specs: Sequence[LayerSpec], storage: KVStorage, rows: RowMask, kernels: Kernels
) -> NativeForward | None:
    """The compiled forward of a model whose projections are fused, or None where torch is to run it.

    It takes the model's weights: what is left of the model can no longer run. Writes to the first pages of `storage`.
    Raises UnsupportedModel where `kernels` is `native` and that cannot be had.
    """
    if kernels == "torch" or (kernels == "auto" and not _applies(model)):
        return None
    try:
        if not _applies(model):
            raise NotSupported("it is not bfloat16 on a CPU")
        forward = NativeForward(parts(model, specs), specs, storage, home())
        distance = disagreement(forward, model, specs, storage, rows)
        if not distance < _FURTHEST:
            raise NotSupported(f"its logits differ by {distance:.1%} from the model's own")
    except (NotSupported, NoLibrary) as reason:
        if kernels == "native":
            raise UnsupportedModel(f"{type(model).__name__} cannot run with `kernels: native`: {reason}") from reason
        logger.warning("%s runs on torch's kernels, two or three times slower: %s", type(model).__name__, reason)
        return None
    _drop_weights(model)
    return forward


def _applies(model: PreTrainedModel) -> bool:
    return model.dtype is torch.bfloat16 and model.device.type == "cpu"


def _drop_weights(model: PreTrainedModel) -> None:
    """The head stays: it is often the embedding, and candidates are looked up in it."""
    head = model.get_output_embeddings()
    for module in model.modules():
        if isinstance(module, nn.Linear) and module is not head:
            module.weight = nn.Parameter(module.weight.to("meta"), requires_grad=False)
