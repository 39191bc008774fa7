"""A pass through a model's layers and head by transformers' own code: see `native.forward` for the compiled one."""

from collections.abc import Sequence
from copy import copy
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from prove_core.attention.base import AttentionBackend, FixedShape, Graphable, LayerSpec
from prove_core.model.hook import CONTEXT
from prove_core.model.pack import Packed
from prove_core.model.rows import RowMask

Logits = tuple[Tensor, Tensor | None]  # [outputs, vocabulary], and the states [outputs, hidden] that the head saw


class ModelForward:
    """transformers' model over an attention backend. `rows` is filled for gated adapters; `states`: keep them."""

    def __init__(
        self,
        model: PreTrainedModel,
        specs: Sequence[LayerSpec],
        backend: AttentionBackend,
        rows: RowMask,
        *,
        states: bool,
    ) -> None:
        self._model = model
        self._specs = specs
        self._backend = backend
        self._context = _PagedAttention(backend, specs)
        self._rows = rows
        self._tap = _Tap(model.get_output_embeddings()) if states else None

    @property
    def side_span(self) -> int | None:
        """See `sides`."""
        return self._backend.side_span

    def fixed(self, shape: FixedShape) -> "ModelForward":
        """The same over static buffers, for passes of one shape. The backend must be `Graphable`."""
        fixed = copy(self)
        fixed._backend = cast(Graphable, self._backend).fixed(shape)
        fixed._context = _PagedAttention(fixed._backend, self._specs)
        return fixed

    def prepare(self, packed: Packed) -> None:
        """What the coming pass needs before its layers run."""
        self._backend.plan(packed.batch)
        self._rows.placeholders = packed.span or (packed.placeholders if len(packed.placeholders) else None)

    def run(self, packed: Packed, embeddings: Tensor | None) -> Logits:
        """Logits `[outputs, vocabulary]`, and the states `[outputs, hidden]` that the head saw (None: not kept).

        `embeddings` `[rows, hidden]`, which may be overwritten; None: the model's own for the pass's ids.
        """
        options: dict[str, Any] = {CONTEXT: self._context}
        if embeddings is None:
            options["input_ids"] = packed.ids
        else:
            options["inputs_embeds"] = embeddings[None]
        output = self._model(position_ids=packed.positions, use_cache=False, logits_to_keep=packed.logits, **options)
        return output.logits[0], None if self._tap is None else self._tap.hidden


class _Tap:
    """The hidden rows [rows, hidden] that the model's head saw last."""

    hidden: Tensor

    def __init__(self, head: torch.nn.Module) -> None:
        head.register_forward_pre_hook(self._keep)

    def _keep(self, _: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.hidden = inputs[0][0]


class _PagedAttention:
    """The attention layers' context: each module's spec, and the backend planned for this pass."""

    def __init__(self, backend: AttentionBackend, specs: Sequence[LayerSpec]) -> None:
        self._backend = backend
        self._specs = specs

    def attend(self, module: torch.nn.Module, q: Tensor, k: Tensor, v: Tensor, options: dict[str, Any]) -> Tensor:
        layer: int = module.layer_idx  # type: ignore[assignment]
        return self._backend.attend(self._specs[layer], q, k, v)
