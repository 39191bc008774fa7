"""A forward pass in compiled code: all layers and the head in one call, which Python only prepares.

Everything between two products costs about as much in torch as the products of a few rows: starting them, waking
threads, Python. Here threads meet some 200 times in a pass and nothing else happens between products.
"""

import ctypes
import weakref
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prove_core.attention.base import Batch, LayerSpec, lengths
from prove_core.kv.storage import KVStorage
from prove_core.model.native.interface import Layer, Model, Pass, Weight, address
from prove_core.model.native.library import library
from prove_core.model.native.rotary import RotaryTable
from prove_core.model.native.structure import LayerParts, Parts
from prove_core.model.native.weights import Kept, halves_together, side_by_side
from prove_core.model.pack import Packed

Numbers = NDArray[np.int32]


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

    def prepare(self, packed: Packed) -> None:
        """See `Forward.prepare`: there is nothing to do."""

    def run(self, packed: Packed, embeddings: Tensor | None) -> tuple[Tensor, Tensor]:
        """See `Forward.run`; `embeddings` must be given. Logits are float32."""
        assert embeddings is not None
        order = _placeholders_last(packed)
        if order is not None:
            embeddings = embeddings[order]
        return self._run(packed, embeddings.contiguous(), order, products_only=False)

    def products(self, rows: int, placeholders: int) -> None:
        """The matrix products alone of a pass of that size whose rows all want logits: for measuring."""
        hidden = torch.zeros(rows, self._model.hidden, dtype=torch.bfloat16)
        indices = torch.arange(rows)
        one = torch.tensor([0, 1], dtype=torch.int32)
        batch = Batch(one * rows, one, one[:1], one[1:] * rows, indices)
        packed = Packed(indices[None], indices[None], batch, indices[rows - placeholders :], None, indices, indices)
        self._run(packed, hidden, None, products_only=True)

    def _run(
        self, packed: Packed, hidden: Tensor, order: Tensor | None, *, products_only: bool
    ) -> tuple[Tensor, Tensor]:
        positions, slots, row_at, outputs = packed.positions[0], packed.batch.slots, None, packed.logits
        if order is not None:
            positions, slots = positions[order], slots[order]
            row_at = torch.empty_like(order).scatter_(0, order, torch.arange(len(order)))
            outputs = row_at[outputs]
        if self._rotary.reach(int(positions.max())):
            self._point_to_tables()
        rows = len(hidden)
        at = np.arange(rows, dtype=np.int32) if row_at is None else row_at.numpy().astype(np.int32)
        seen, gap_begin, gap_end = _sight(packed.batch, self._page_size, rows)
        wanted = outputs.numpy().astype(np.int32)
        logits = torch.empty(len(wanted), self._model.vocabulary)
        states = torch.empty(len(wanted), self._model.hidden, dtype=torch.bfloat16)
        batch = packed.batch
        task = Pass(
            hidden=address(hidden),
            positions=address(positions),
            slots=address(slots),
            row_at=address(at),
            windows=address(batch.qo_indptr),
            pages=address(batch.kv_indptr),
            page_table=address(batch.kv_indices),
            seen=address(seen),
            gap_begin=address(gap_begin),
            gap_end=address(gap_end),
            outputs=address(wanted),
            logits=address(logits),
            states=address(states),
            rows=rows,
            tokens=rows - len(packed.placeholders),
            window_count=len(batch.qo_indptr) - 1,
            output_count=len(wanted),
            threads=torch.get_num_threads(),
            products_only=products_only,
        )
        self.library.run(self._model, task, self._workspace)
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
        self._model.cosines, self._model.sines = address(self._rotary.cosines), address(self._rotary.sines)


def _placeholders_last(packed: Packed) -> Tensor | None:
    """The order of rows in which placeholders come behind all tokens; None: as they are."""
    count, rows = len(packed.placeholders), packed.ids.shape[1]
    if not count or int(packed.placeholders[0]) == rows - count:
        return None
    tokens = torch.ones(rows, dtype=torch.bool).index_fill_(0, packed.placeholders, False)
    return torch.cat([tokens.nonzero()[:, 0], packed.placeholders])


def _sight(batch: Batch, page_size: int, rows: int) -> tuple[Numbers, Numbers, Numbers]:
    """How many keys each row sees, itself the last, and the gap in them: int32 `[rows]`, in order of windows."""
    starts = batch.qo_indptr.numpy()
    ends = np.array(lengths(batch, page_size), dtype=np.int32)
    seen = np.arange(1, rows + 1, dtype=np.int32) + np.repeat(ends - starts[1:], np.diff(starts))
    gap_begin, gap_end = np.zeros(rows, np.int32), np.zeros(rows, np.int32)
    for gap in batch.gaps:
        gap_begin[gap.row : gap.row + gap.size] = gap.begin
        gap_end[gap.row : gap.row + gap.size] = gap.end
    return seen.astype(np.int32), gap_begin, gap_end
