"""A forward pass in compiled code: all layers and the head in one call, which Python only prepares.

Everything between two products costs about as much in torch as the products of a few rows: starting them, waking
threads, Python. Here threads meet some 200 times in a pass and nothing else happens between products.
"""

import ctypes
import weakref
from array import array
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor

from prove_core.attention.base import LayerSpec
from prove_core.kv.storage import KVStorage
from prove_core.model.native.interface import Layer, Model, Task, Weight, address
from prove_core.model.native.library import library
from prove_core.model.native.rotary import RotaryTable
from prove_core.model.native.structure import LayerParts, Parts
from prove_core.model.native.weights import Kept, halves_together, side_by_side
from prove_core.model.pack import Layout


class NativeForward:
    """The compiled pass of one model over one KV storage. A row's bits do not depend on what else is in the pass.

    Copies the weights; raises NoLibrary.
    """

    def __init__(
        self, model: Parts, specs: Sequence[LayerSpec], storage: KVStorage, home: Path, *, portable: bool = False
    ) -> None:
        self.library = library(home, portable=portable)
        self.side_span = self.library.chunk
        self._kept = Kept()
        self._rotary = RotaryTable(model.rotary)
        self._page_size = storage.page_size
        layers = [
            self._layer(part, spec, kv) for part, spec, kv in zip(model.layers, specs, storage.layers, strict=True)
        ]
        self._layers = (Layer * len(layers))(*layers)
        head = self._kept.linear(model.head, [model.head.out_features])
        self._model = self._whole(model, specs[0], head)
        self._logits, self._states = torch.empty(0), torch.empty(0)
        self._views: dict[int, tuple[Tensor, Tensor]] = {}  # of their first rows
        self._workspace = self.library.new_workspace()
        weakref.finalize(self, self.library.release_workspace, self._workspace)

    def complete(self, placeholders: Tensor | None, banned: Tensor) -> None:
        """What rows of placeholders begin with, `[n, hidden]` (see `ModelRunner`), and ids whose logits are -inf."""
        model, kept = self._model, self._kept
        if placeholders is not None:
            model.placeholders, model.placeholder_count = kept.keep(placeholders.contiguous()), len(placeholders)
        known = banned[banned < model.vocabulary].contiguous()
        model.banned, model.banned_count = kept.keep(known), len(known)

    def run(self, layout: Layout) -> tuple[Tensor, Tensor]:
        """As `ModelForward.run`. Logits are float32; what it answers stands until the next run."""
        return self._run(layout, products_only=False)

    def products(self, rows: int, placeholders: int) -> None:
        """The matrix products alone of a pass of that size whose rows all want logits: for measuring."""
        indices, zeros = list(range(rows)), [0] * rows
        behind = indices[rows - placeholders :]
        layout = Layout(zeros, zeros, indices, behind, zeros, indices, [0, rows], [0, 1], [0], [rows])
        self._run(layout, products_only=True)

    def _run(self, layout: Layout, *, products_only: bool) -> tuple[Tensor, Tensor]:
        wanted = len(layout.logits)
        logits, states = self._answers(wanted)
        own = layout.ids, layout.positions, layout.slots, layout.placeholders, layout.ordinals, layout.logits
        paged = layout.qo_indptr, layout.kv_indptr, layout.kv_indices
        _long, (ids, positions, slots, placeholders, ordinals, outputs, _) = _side_by_side("q", own)
        _short, (windows, pages, page_table, gaps, _) = _side_by_side("i", (*paged, chain(*layout.gaps)))
        task = Task(
            ids=ids,
            positions=positions,
            slots=slots,
            placeholders=placeholders,
            ordinals=ordinals,
            windows=windows,
            pages=pages,
            page_table=page_table,
            gaps=gaps,
            outputs=outputs,
            logits=address(logits),
            states=address(states),
            rows=len(layout.ids),
            placeholder_count=len(layout.placeholders),
            window_count=len(layout.qo_indptr) - 1,
            gap_count=len(layout.gaps),
            output_count=wanted,
            threads=torch.get_num_threads(),
            products_only=products_only,
        )
        while reach := self.library.run(self._model, task, self._workspace):
            self._rotary.reach(reach - 1)
            self._point_to_tables()
        return logits, states

    def _answers(self, count: int) -> tuple[Tensor, Tensor]:
        """Room for the logits and states of so many rows, the same as for the pass before."""
        if count not in self._views:
            if count > len(self._logits):
                self._logits = torch.empty(count, self._model.vocabulary)
                self._states = torch.empty(count, self._model.hidden, dtype=torch.bfloat16)
                self._views.clear()
            self._views[count] = self._logits[:count], self._states[:count]
        return self._views[count]

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


def _side_by_side(code: str, lists: Sequence[Iterable[int]]) -> tuple["array[int]", list[int]]:
    """All numbers in one array, which must be kept, and the addresses where each list begins and the last one ends."""
    numbers: array[int] = array(code)
    places = [0]
    for values in lists:
        numbers.extend(values)
        places.append(len(numbers))
    start, _ = numbers.buffer_info()
    return numbers, [start + place * numbers.itemsize for place in places]
