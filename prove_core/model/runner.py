"""One forward pass of a transformers model over packed windows, on our paged KV."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import cast

import torch
from transformers import PreTrainedModel

from prove_core.attention.base import AttentionBackend, LayerSpec
from prove_core.kv.storage import KVStorage
from prove_core.model.forward import Logits, ModelForward
from prove_core.model.graphs import Outputs, RecordedPass, Recorder, fixed_shape, record_all
from prove_core.model.native.forward import NativeForward
from prove_core.model.native.rows import NativeReader
from prove_core.model.native.walk import NativeWalk
from prove_core.model.pack import Packed, lay_out, pack
from prove_core.model.progress import SILENT, Progress
from prove_core.model.recall import Recall
from prove_core.model.refine import Refiner
from prove_core.model.rows import RowMask
from prove_core.model.scores import Scorer, read_rows
from prove_core.model.sequential import SequentialHead
from prove_core.model.shapes import PassShape, fitting
from prove_core.model.sides import readable, spread
from prove_core.model.threads import ThreadChoice
from prove_core.model.tiled import TILE, make_deterministic
from prove_core.model.window import PassOutput, Window


class ModelRunner:
    """Implements `Runner` for a causal LM that `probe` has accepted (and switched to our attention).

    `backend` works over `storage`, and is a deterministic one where `deterministic` is asked for; a `NativeForward`
    does the work of the model's layers and head too.
    `banned` ids are never chosen and have no probability. Placeholder rows take row `min(i, n - 1)` of
    `placeholder_table` (`[hidden]` or `[n, hidden]`, as the first layer is to see it: after any scaling of embeddings),
    i counted within its group; without a table they take the embedding of `placeholder_id`. `rows` is filled for
    gated adapters before each pass. `sequential` corrects placeholders one after another, with what the context
    says by `recall`. `threads`, if given, decides
    how many CPU threads a pass takes. Not thread-safe.

    `deterministic`: a row's result has the same bits whatever else is in the pass and however it arrives. Changes the
    model in place; raises `UnsupportedModel` where this machine or model cannot.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        specs: list[LayerSpec],
        storage: KVStorage,
        backend: AttentionBackend | NativeForward,
        *,
        banned: torch.Tensor | Sequence[int],
        placeholder_id: int | None,
        placeholder_table: torch.Tensor | None = None,
        rows: RowMask | None = None,
        sequential: SequentialHead | None = None,
        recall: Recall | None = None,
        deterministic: bool = False,
        threads: ThreadChoice | None = None,
    ) -> None:
        self._model = model
        self._threads = threads
        self._storage = storage
        self.native = backend if isinstance(backend, NativeForward) else None
        tiled = deterministic and self.native is None
        self._tile = TILE if tiled else 1
        if tiled:
            make_deterministic(model)
        if not isinstance(backend, NativeForward):
            rows = rows if rows is not None else RowMask()
            self._forward = ModelForward(model, specs, backend, rows, states=sequential is not None)
        self._recorded: dict[PassShape, RecordedPass] = {}
        self._embed = model.get_input_embeddings()
        head = model.get_output_embeddings().weight
        self._scorer = Scorer(
            banned if self.native is None else (),
            vocabulary=len(head),
            device=model.device,
            drafts=sequential is None,
            read=read_rows if self.native is None else NativeReader(self.native.library),
        )
        self._placeholder_id = 0 if placeholder_id is None else placeholder_id
        self._table = None if placeholder_table is None else _as_rows(placeholder_table, self._embed.weight)
        if self.native is not None:
            self.native.complete(self._table, torch.as_tensor(banned, dtype=torch.int64).flatten())
        walk = _walk(self.native, sequential, recall, self._embed, head)
        self._bare = self.native is not None and (sequential is None or walk is not None)
        self._refiner = Refiner(sequential, self._embed, head, alone=deterministic, recall=recall, walk=walk)

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """See `Runner.run`."""
        if self._threads is None:
            return self._run(windows)
        with self._threads.timed(sum(window.rows for window in windows)):
            return self._run(windows)

    @torch.inference_mode()
    def follow(self, windows: Sequence[Window]) -> None:
        """The same pass as `run`, for a rank that shares in its products and chooses nothing."""
        self._prepared(self._readable(windows))()

    @torch.inference_mode()
    def record(self, shapes: Sequence[PassShape], recorder: Recorder, progress: Progress = SILENT) -> None:
        """Record passes of these shapes, which are replayed from then on; passes of other shapes run as before.

        The backend must be a `Graphable` one. KV is written to the scratch page alone.
        """
        forward, head = self._forward, self._model.get_output_embeddings().weight
        most = max(shape.rows for shape in shapes)
        outputs = Outputs(head.new_zeros(most, head.shape[0]), head.new_zeros(most, head.shape[1]))

        def make(shape: PassShape) -> RecordedPass:
            fixed = forward.fixed(fixed_shape(shape, self._storage.page_size))
            return RecordedPass(shape, self._packed([], shape), fixed, self._embeddings, outputs)

        progress.stage("recording passes", total=len(shapes))
        for recorded in record_all(shapes, make, recorder):
            progress.advance(1)
            if recorded is not None:
                self._recorded[recorded.shape] = recorded

    def _run(self, windows: Sequence[Window]) -> PassOutput:
        if self._bare and all(window.sampling is None and window.floor is None for window in windows):
            return self._outputs(windows, bare=True)
        with torch.inference_mode():
            return self._outputs(windows, bare=False)

    def _outputs(self, windows: Sequence[Window], *, bare: bool) -> PassOutput:
        """`bare`: torch computes nothing, and logits come as they are to be read."""
        asked, windows = windows, self._readable(windows)
        forward = self._prepared(windows)
        begin = time.perf_counter()
        logits, states = forward()
        masked = logits if bare else self._scorer.mask(logits, windows)
        scores = self._scorer.score(masked, windows)
        if any(window.groups or window.remnant for window in windows):
            scores = self._refiner.refine(states, masked, windows, scores)
        if windows is not asked:
            scores = [
                replace(score, behind=spread(own.sides, window.sides, score.behind)) if own.sides else score
                for own, window, score in zip(asked, windows, scores, strict=True)
            ]
        return PassOutput(outputs=scores, seconds=time.perf_counter() - begin)

    def _readable(self, windows: Sequence[Window]) -> Sequence[Window]:
        """Without the side paths that would not have the bits of what they stand for."""
        if not any(window.sides for window in windows):
            return windows
        span = (self.native or self._forward).side_span
        return [replace(window, sides=tuple(readable(window, span))) if window.sides else window for window in windows]

    def _prepared(self, windows: Sequence[Window]) -> Callable[[], Logits]:
        """The pass, with all in place that its layers look up: to be called once."""
        if self.native is not None:
            page_size, placeholder_id = self._storage.page_size, self._placeholder_id
            layout = lay_out(windows, page_size=page_size, placeholder_id=placeholder_id, in_pairs=True)
            return partial(self.native.run, layout)
        shape = fitting(windows, self._recorded, self._storage.page_size)
        packed = self._packed(windows, shape)
        if shape is None:
            self._forward.prepare(packed)
            return lambda: self._forward.run(packed, self._embeddings(packed))
        self._recorded[shape].plan(packed)
        return self._recorded[shape].replay

    def _packed(self, windows: Sequence[Window], shape: PassShape | None) -> Packed:
        return pack(
            windows,
            page_size=self._storage.page_size,
            scratch_page=self._storage.scratch_page,
            placeholder_id=self._placeholder_id,
            tile=self._tile,
            device=self._model.device,
            shape=shape,
        )

    def _embeddings(self, packed: Packed) -> torch.Tensor | None:
        """`[rows, hidden]`, where placeholders have their own; None: a model's forward looks them up itself."""
        if self._table is None or not len(packed.placeholders):
            return None
        embeddings: torch.Tensor = self._embed(packed.ids)[0]
        embeddings[packed.placeholders] = self._table[packed.ordinals.clamp_max(len(self._table) - 1)]
        return embeddings


def _walk(
    native: NativeForward | None,
    head: SequentialHead | None,
    recall: Recall | None,
    embed: torch.nn.Module,
    output: torch.Tensor,
) -> NativeWalk | None:
    if native is None or head is None or not NativeWalk.can(head, output):
        return None
    return NativeWalk(native.library, head, cast(torch.Tensor, embed.weight), output, recall)


def _as_rows(table: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return table.detach().reshape(-1, table.shape[-1]).to(like)
