"""A forward pass in compiled code: all layers and the head in one call, which Python only prepares.

Everything between two products costs about as much in torch as the products of a few rows: starting them, waking
threads, Python. Here threads meet some 200 times in a pass and nothing else happens between products.
"""

import ctypes
import weakref
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from prove_core.attention.base import Batch, LayerSpec
from prove_core.kv.storage import KVStorage
from prove_core.model.native.interface import Layer, Model, Task, Weight, address
from prove_core.model.native.library import library
from prove_core.model.native.rotary import RotaryTable
from prove_core.model.native.structure import LayerParts, Parts
from prove_core.model.native.weights import Kept, halves_together, side_by_side
from prove_core.model.pack import Packed


class NativeForward:
    """The compiled pass of one model over one KV storage. A row's bits do not depend on what else is in the pass.

    Copies the weights; raises NoLibrary.
    """

    def __init__(
        self, model: Parts, specs: Sequence[LayerSpec], storage: KVStorage, home: Path, *, portable: bool = False
    ) -> None:
        self.library = library(home, portable=portable)
        self._kept = Kept()
        self._rotary = RotaryTable(model.rotary)
        self._page_size = storage.page_size
        layers = [
            self._layer(part, spec, kv) for part, spec, kv in zip(model.layers, specs, storage.layers, strict=True)
        ]
        self._layers = (Layer * len(layers))(*layers)
        head = self._kept.linear(model.head, [model.head.out_features])
        self._model = self._whole(model, specs[0], head)
        self._workspace = self.library.new_workspace()
        weakref.finalize(self, self.library.release_workspace, self._workspace)

    def complete(self, placeholders: Tensor | None, banned: Tensor) -> None:
        """What rows of placeholders begin with, `[n, hidden]` (see `ModelRunner`), and ids whose logits are -inf."""
        model, kept = self._model, self._kept
        if placeholders is not None:
            model.placeholders, model.placeholder_count = kept.keep(placeholders.contiguous()), len(placeholders)
        known = banned[banned < model.vocabulary].contiguous()
        model.banned, model.banned_count = kept.keep(known), len(known)

    def prepare(self, packed: Packed) -> None:
        """See `Forward.prepare`: there is nothing to do."""

    def run(self, packed: Packed, embeddings: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `Forward.run`; `embeddings` are the model's own: None. Logits are float32."""
        assert embeddings is None
        return self._run(packed, products_only=False)

    def products(self, rows: int, placeholders: int) -> None:
        """The matrix products alone of a pass of that size whose rows all want logits: for measuring."""
        indices = torch.arange(rows)
        one = torch.tensor([0, 1], dtype=torch.int32)
        batch = Batch(one * rows, one, one[:1], one[1:] * rows, indices)
        zeros = torch.zeros_like(indices)
        packed = Packed(zeros[None], zeros[None], batch, indices[rows - placeholders :], None, zeros, indices)
        self._run(packed, products_only=True)

    def _run(self, packed: Packed, *, products_only: bool) -> tuple[Tensor, Tensor]:
        batch, model = packed.batch, self._model
        rows, wanted = packed.ids.shape[1], len(packed.logits)
        logits = torch.empty(wanted, model.vocabulary)
        states = torch.empty(wanted, model.hidden, dtype=torch.bfloat16)
        gaps = _numbers(chain(*batch.gaps))
        task = Task(
            ids=address(packed.ids),
            positions=address(packed.positions),
            slots=address(batch.slots),
            placeholders=address(packed.placeholders),
            ordinals=address(packed.ordinals),
            windows=address(batch.qo_indptr),
            pages=address(batch.kv_indptr),
            page_table=address(batch.kv_indices),
            last_page=address(batch.kv_last_page_len),
            gaps=ctypes.addressof(gaps),
            outputs=address(packed.logits),
            logits=address(logits),
            states=address(states),
            rows=rows,
            placeholder_count=len(packed.placeholders),
            window_count=len(batch.qo_indptr) - 1,
            gap_count=len(batch.gaps),
            output_count=wanted,
            threads=torch.get_num_threads(),
            products_only=products_only,
        )
        while positions := self.library.run(model, task, self._workspace):
            self._rotary.reach(positions - 1)
            self._point_to_tables()
        return logits, states

    def _layer(self, part: LayerParts, spec: LayerSpec, kv: tuple[Tensor, Tensor]) -> Layer:
        kept = self._kept
        hidden = part.input_norm.numel()
        return Layer(
            input_norm=kept.floats(part.input_norm),
            middle_norm=kept.floats(part.middle_norm),
            q_norm=kept.floats(part.q_norm),
            k_norm=kept.floats(part.k_norm),
            qkv=kept.linear(part.qkv, part.qkv_sizes, halves_together(sum(part.qkv_sizes), spec.head_dim)),
            o=kept.linear(part.o, [hidden]),
            gate_up=kept.linear(part.gate_up, [part.inner] * 2, side_by_side(part.inner)),
            down=kept.linear(part.down, [hidden]),
            keys=kept.keep(kv[0]),
            values=kept.keep(kv[1]),
            window=spec.window or 0,
            scaling=spec.scaling,
        )

    def _whole(self, model: Parts, spec: LayerSpec, head: Weight) -> Model:
        whole = Model(
            layers=ctypes.addressof(self._layers),
            embedding=self._kept.keep(model.embedding),
            final_norm=self._kept.floats(model.final_norm),
            head=head,
            count=len(self._layers),
            hidden=model.final_norm.numel(),
            query_heads=spec.query_heads,
            kv_heads=spec.kv_heads,
            head_dim=spec.head_dim,
            page_size=self._page_size,
            vocabulary=model.head.out_features,
            epsilon=model.epsilon,
        )
        self._model = whole
        self._point_to_tables()
        return whole

    def _point_to_tables(self) -> None:
        model, tables = self._model, self._rotary
        model.cosines, model.sines = address(tables.cosines), address(tables.sines)
        model.positions = len(tables.cosines)


def _numbers(values: Iterable[int]) -> ctypes.Array[ctypes.c_int32]:
    listed = list(values)
    return (ctypes.c_int32 * len(listed))(*listed)
