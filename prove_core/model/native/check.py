"""Does the compiled pass compute what the model computes? A trial tells, before anybody is served."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from prove_core.attention.base import LayerSpec
from prove_core.attention.torch_backend import TorchAttention
from prove_core.kv.storage import KVStorage
from prove_core.model.forward import ModelForward
from prove_core.model.native.forward import NativeForward
from prove_core.model.pack import lay_out, pack
from prove_core.model.rows import RowMask
from prove_core.model.window import PlaceholderGroup, Window

_TOKENS = (24, 8)  # of a first pass, and of a second one behind it
_GROUPS = (PlaceholderGroup(3, 2), PlaceholderGroup(7, 2))  # of the second


@torch.inference_mode()
def disagreement(
    native: NativeForward, model: PreTrainedModel, specs: Sequence[LayerSpec], storage: KVStorage, rows: RowMask
) -> float:
    """How far apart the logits are, relative to their size, in passes with tokens and placeholders of a sequence."""
    reference = ModelForward(model, specs, TorchAttention(storage, specs), rows, states=False)
    windows = _windows(model.get_input_embeddings().weight.shape[0], storage)
    theirs = torch.cat([_logits(reference, window, storage) for window in windows])
    layouts = [lay_out([window], page_size=storage.page_size, placeholder_id=0) for window in windows]
    ours = torch.cat([native.run(layout)[0].clone() for layout in layouts])
    return float((ours - theirs).norm() / theirs.norm())


def _logits(forward: ModelForward, window: Window, storage: KVStorage) -> Tensor:
    packed = pack(
        [window],
        page_size=storage.page_size,
        scratch_page=storage.scratch_page,
        placeholder_id=0,
        tile=1,
        device=storage.device,
    )
    forward.prepare(packed)
    return forward.run(packed, None)[0].float()


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
