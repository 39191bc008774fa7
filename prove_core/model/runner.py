"""One forward pass of a transformers model over packed windows, on our paged KV."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from prove_core.attention.base import AttentionBackend, LayerSpec
from prove_core.kv.storage import KVStorage
from prove_core.model.hook import CONTEXT
from prove_core.model.pack import Packed, pack
from prove_core.model.refine import Refiner
from prove_core.model.rows import RowMask
from prove_core.model.scores import Scorer
from prove_core.model.sequential import SequentialHead
from prove_core.model.threads import ThreadChoice
from prove_core.model.tiled import TILE, make_deterministic
from prove_core.model.window import PassOutput, Window


class ModelRunner:
    """Implements `Runner` for a causal LM that `probe` has accepted (and switched to our attention).

    `backend` works over `storage`, and is a deterministic one where `deterministic` is asked for.
    `banned` ids are never chosen and have no probability. Placeholder rows take row `min(i, n - 1)` of
    `placeholder_table` (`[hidden]` or `[n, hidden]`, as the first layer is to see it: after any scaling of embeddings),
    i counted within its group; without a table they take the embedding of `placeholder_id`. `rows` is filled for
    gated adapters before each pass. `sequential` corrects placeholders one after another. `threads`, if given, decides
    how many CPU threads a pass takes. Not thread-safe.

    `deterministic`: a row's result has the same bits whatever else is in the pass and however it arrives. Changes the
    model in place; raises `UnsupportedModel` where this machine or model cannot.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        specs: list[LayerSpec],
        storage: KVStorage,
        backend: AttentionBackend,
        *,
        banned: torch.Tensor | Sequence[int],
        placeholder_id: int | None,
        placeholder_table: torch.Tensor | None = None,
        rows: RowMask | None = None,
        sequential: SequentialHead | None = None,
        deterministic: bool = False,
        threads: ThreadChoice | None = None,
    ) -> None:
        self._model = model
        self._threads = threads
        self._storage = storage
        self._tile = TILE if deterministic else 1
        self._backend = backend
        if deterministic:
            make_deterministic(model)
        self._context = _PagedAttention(self._backend, specs)
        self._embed = model.get_input_embeddings()
        self._scorer = Scorer(banned, vocabulary=model.get_output_embeddings().weight.shape[0], device=model.device)
        self._placeholder_id = 0 if placeholder_id is None else placeholder_id
        self._table = None if placeholder_table is None else _as_rows(placeholder_table, self._embed.weight)
        self._rows = rows if rows is not None else RowMask()
        head = model.get_output_embeddings()
        self._refiner = Refiner(sequential, self._embed, head.weight, alone=deterministic)
        self._tap = None if sequential is None else _Tap(head)

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """See `Runner.run`."""
        if self._threads is None:
            return self._run(windows)
        with self._threads.timed(sum(window.rows for window in windows)):
            return self._run(windows)

    @torch.inference_mode()
    def follow(self, windows: Sequence[Window]) -> None:
        """The same pass as `run`, for a rank that shares in its products and chooses nothing."""
        self._forward(self._planned(windows))

    @torch.inference_mode()
    def _run(self, windows: Sequence[Window]) -> PassOutput:
        packed = self._planned(windows)
        begin = time.perf_counter()
        logits = self._forward(packed)
        masked = self._scorer.mask(logits, windows)
        scores = self._scorer.score(masked, windows)
        if len(packed.placeholders):
            hidden = None if self._tap is None else self._tap.hidden
            scores = self._refiner.refine(hidden, masked, windows, scores)
        return PassOutput(outputs=scores, seconds=time.perf_counter() - begin)

    def _planned(self, windows: Sequence[Window]) -> Packed:
        """The windows as tensors, with all that layers look up during the pass in place."""
        packed = pack(
            windows,
            page_size=self._storage.page_size,
            scratch_page=self._storage.scratch_page,
            placeholder_id=self._placeholder_id,
            tile=self._tile,
            device=self._model.device,
        )
        self._backend.plan(packed.batch)
        self._rows.placeholders = packed.span or (packed.placeholders if len(packed.placeholders) else None)
        return packed

    def _forward(self, packed: Packed) -> torch.Tensor:
        """Logits `[len(packed.logits), vocabulary]`."""
        options: dict[str, Any] = {CONTEXT: self._context}
        if self._table is not None and len(packed.placeholders):
            embeds = self._embed(packed.ids)
            embeds[0, packed.placeholders] = self._table[packed.ordinals.clamp_max(len(self._table) - 1)]
            options["inputs_embeds"] = embeds
        else:
            options["input_ids"] = packed.ids
        output = self._model(position_ids=packed.positions, use_cache=False, logits_to_keep=packed.logits, **options)
        logits: torch.Tensor = output.logits[0]
        return logits


class _Tap:
    """The hidden rows [rows, hidden] that the model's head saw last."""

    hidden: torch.Tensor

    def __init__(self, head: torch.nn.Module) -> None:
        head.register_forward_pre_hook(self._keep)

    def _keep(self, _: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self.hidden = inputs[0][0]


class _PagedAttention:
    """The attention layers' context: each module's spec, and the backend planned for this pass."""

    def __init__(self, backend: AttentionBackend, specs: Sequence[LayerSpec]) -> None:
        self._backend = backend
        self._specs = specs

    def attend(
        self, module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: dict[str, Any]
    ) -> torch.Tensor:
        layer: int = module.layer_idx  # type: ignore[assignment]
        return self._backend.attend(self._specs[layer], q, k, v)


def _as_rows(table: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return table.detach().reshape(-1, table.shape[-1]).to(like)
