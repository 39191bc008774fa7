"""The sequential head's walk in compiled code, for blocks that take the likeliest token."""

import ctypes
from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TypeVar

import torch
from torch import Tensor

from prove_core.model.in_use import InUse
from prove_core.model.native.interface import Block, Head, Other, Others, address, begin
from prove_core.model.native.library import Library
from prove_core.model.native.weights import WIDE, Kept, in_blocks
from prove_core.model.recall import Recall
from prove_core.model.refine import Walked
from prove_core.model.sequential import SequentialHead
from prove_core.model.window import Remnant
from prove_core.types import Alternative, Alternatives

T = TypeVar("T", Block, Others)


class NativeWalk:
    """Implements `refine.Walk` for a bfloat16 head. `embedding` and `output` are [vocabulary, hidden]."""

    def __init__(
        self, library: Library, head: SequentialHead, embedding: Tensor, output: Tensor, recall: Recall | None = None
    ) -> None:
        self._library = library
        self._kept = Kept()
        self._kept_words = library.kept_size(len(head.a)) // 8
        a, r, o = (self._kept.blocks(weight.detach(), WIDE) for weight in (head.a, head.r, head.o))
        self._head = Head(
            a=a,
            r=r,
            o=o,
            position=self._kept.floats(head.position),
            previous=self._kept.keep(_previous(library, head.b, embedding)),
            output=self._kept.keep(output.detach().contiguous()),
            recall=None if recall is None else self._kept.floats(torch.tensor([*recall.totals, recall.latest])),
            hidden=output.shape[1],
            width=len(head.a),
            placeholders=len(head.position),
            vocabulary=len(output),
        )

    @staticmethod
    def can(head: SequentialHead, output: Tensor) -> bool:
        """Whether sizes and dtype fit the compiled code."""
        sizes = (*head.a.shape, output.shape[1])
        return all(size % WIDE == 0 for size in sizes) and head.a.dtype is output.dtype is torch.bfloat16

    def __call__(self, hidden: Tensor, logits: Tensor, blocks: Sequence[InUse]) -> list[Walked]:
        """See `refine.Walk`."""
        ends = [*accumulate([block.length for block in blocks], initial=0)]
        ids, probabilities = array("q", [0]) * ends[-1], array("f", [0.0]) * ends[-1]
        others = _array(Others, len(blocks))()
        kept = [array("q", [0]) * (block.length * self._kept_words) if block.keeps else _NOTHING for block in blocks]
        self._library.walk(
            self._head,
            _array(Block, len(blocks))(*[self._block(*each) for each in zip(blocks, kept, strict=True)]),
            len(blocks),
            address(logits),
            address(hidden),
            torch.get_num_threads(),
            begin(ids),
            begin(probabilities),
            others,
        )
        found = []
        for block, first, end, rows, beside in zip(blocks, ends[:-1], ends[1:], kept, others, strict=True):
            remnant = Remnant(block.index, block.length, rows) if block.keeps else None
            new = slice(first + block.known, end)
            chosen = ids[new].tolist(), probabilities[new].tolist()
            found.append(Walked(*chosen, _alternatives(beside), remnant))
        return found

    def _block(self, block: InUse, kept: "array[int]") -> Block:
        context, tail = block.context, block.tail.rows
        earlier = 0
        if isinstance(tail, array):
            earlier = begin(tail) + block.tail_first * self._kept_words * tail.itemsize
        place = len(context), block.first, block.rows, block.tail_rows, block.known
        return Block(begin(context), earlier, begin(kept) if kept else 0, *place)


_NOTHING = array("q")


def _previous(library: Library, b: Tensor, embedding: Tensor) -> Tensor:
    """What the head's `b` makes of each token before a placeholder, [vocabulary, width]: it depends on nothing else."""
    weight, embedding = in_blocks(b.detach(), WIDE), embedding.detach().contiguous()
    previous = embedding.new_empty(len(embedding), len(b))
    threads = torch.get_num_threads()
    library.embed(address(weight), address(embedding), *b.shape[::-1], len(embedding), threads, address(previous))
    return previous


@lru_cache
def _array(kind: type[T], count: int) -> type[ctypes.Array[T]]:
    """A type of ctypes' own is made anew each time otherwise: slow."""
    return kind * count


def _alternatives(others: Others) -> Alternatives:
    found: list[list[Other]] = []
    for other in others.tokens[: others.count]:
        if other.alternative == len(found):
            found.append([])
        found[other.alternative].append(other)
    return tuple(
        [
            Alternative(way[0].accepted, tuple([each.token for each in way]), tuple([each.probability for each in way]))
            for way in found
        ]
    )
