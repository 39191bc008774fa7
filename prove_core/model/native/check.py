"""Does the compiled pass compute what the model computes? A trial tells, before anybody is served."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from prove_core.attention.base import LayerSpec
from prove_core.attention.torch_backend import TorchAttention
from prove_core.kv.storage import KVStorage
from prove_core.model.forward import Forward, ModelForward
from prove_core.model.native.forward import NativeForward
from prove_core.model.pack import pack
from prove_core.model.rows import RowMask
from prove_core.model.window import PlaceholderGroup, Window

_TOKENS = (24, 8)  # of a first pass, and of a second one behind it
_GROUPS = (PlaceholderGroup(3, 2), PlaceholderGroup(7, 2))  # of the second


@torch.inference_mode()
def disagreement(
    native: NativeForward, model: PreTrainedModel, specs: Sequence[LayerSpec], storage: KVStorage, rows: RowMask
) -> float:
    """How far apart the logits are, relative to their size, in passes with tokens and placeholders of a sequence."""
    theirs = _logits(ModelForward(model, specs, TorchAttention(storage, specs), rows, states=False), model, storage)
    return float((_logits(native, model, storage) - theirs).norm() / theirs.norm())


def _logits(forward: Forward, model: PreTrainedModel, storage: KVStorage) -> Tensor:
    parts = []
    for window in _windows(model.get_input_embeddings().weight.shape[0], storage):
        packed = pack(
            [window],
            page_size=storage.page_size,
            scratch_page=storage.scratch_page,
            placeholder_id=0,
            tile=1,
            device=storage.device,
        )
        forward.prepare(packed)
        parts.append(forward.run(packed, None)[0].float())
    return torch.cat(parts)


def _windows(vocabulary: int, storage: KVStorage) -> list[Window]:
    """As far as the pool has room for them."""
    ids = torch.randint(vocabulary, (sum(_TOKENS),), generator=torch.Generator().manual_seed(0)).tolist()
    first, _ = _TOKENS
    pages = range(storage.pages)
    windows = [
        Window(ids[:first], 0, pages, logits=first),
        Window(ids[first:], first, pages, _GROUPS, logits=len(ids) - first),
    ]
    room = storage.pages * storage.page_size
    return [window for window in windows if window.length <= room] or [Window(ids[:1], 0, pages, logits=1)]
