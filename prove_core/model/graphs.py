"""Passes recorded once per shape and replayed: a decode pass is hundreds of small kernels, each slower to launch than
to run."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import NamedTuple, Protocol

import torch

from prove_core.attention.base import FixedShape
from prove_core.model.forward import Logits, ModelForward
from prove_core.model.pack import Packed
from prove_core.model.shapes import PassKind, PassShape

logger = logging.getLogger(__name__)

Replay = Callable[[], None]
_WARM_UPS = 2  # kernels are chosen and buffers made at the first calls, which cannot be recorded


class Recorder(Protocol):
    """Records what a function does to tensors."""

    def record(self, body: Callable[[], None]) -> Replay:
        """Run `body`, which reads and writes the same tensors at every call; the answer does it again."""
        ...


class CudaRecorder:
    """CUDA graphs that share one memory pool: what one needs within a pass is free for the next."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, body: Callable[[], None]) -> Replay:
        """See `Recorder.record`."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UPS):
                body()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            body()
        return graph.replay


class Outputs(NamedTuple):
    """Where all recorded passes leave their results: `logits` `[rows, vocabulary]` and `states` `[rows, hidden]`."""

    logits: torch.Tensor
    states: torch.Tensor


class RecordedPass:
    """A pass of one shape: `plan` it, then `replay`. `blank` is one of padding alone, and its tensors are kept.

    `forward` works on static buffers; `embed` gives it the embeddings of a pass.
    """

    def __init__(
        self,
        shape: PassShape,
        blank: Packed,
        forward: ModelForward,
        embed: Callable[[Packed], torch.Tensor | None],
        outputs: Outputs,
    ) -> None:
        self.shape = shape
        self._static = blank
        self._forward = forward
        self._embed = embed
        self._outputs = Outputs(outputs.logits[: shape.rows], outputs.states[: shape.rows])
        self._states = False
        self._replay: Replay | None = None

    def record(self, recorder: Recorder) -> None:
        """Record the pass."""
        self._forward.prepare(self._static)
        self._replay = recorder.record(self._body)

    def plan(self, packed: Packed) -> None:
        """Make `packed`, padded to the shape, the next pass."""
        for static, new in zip(_tensors(self._static), _tensors(packed), strict=True):
            static.copy_(new)
        self._forward.prepare(packed)

    def replay(self) -> Logits:
        """Run the planned pass. What it answers stands until the next replay of any shape."""
        if self._replay is None:
            raise AssertionError("replayed before it was recorded")
        self._replay()
        return self._outputs.logits, self._outputs.states if self._states else None

    def _body(self) -> None:
        logits, states = self._forward.run(self._static, self._embed(self._static))
        self._outputs.logits.copy_(logits)
        self._states = states is not None
        if states is not None:
            self._outputs.states.copy_(states)


def record_all(
    shapes: Iterable[PassShape], make: Callable[[PassShape], RecordedPass], recorder: Recorder
) -> Iterator[RecordedPass | None]:
    """Record passes one after another, the largest first: smaller ones then find their memory in the pool.

    None for one that cannot be recorded, with a line in the log: such passes run eagerly.
    """
    for shape in sorted(shapes, reverse=True):
        try:
            recorded = make(shape)
            recorded.record(recorder)
        except Exception as error:
            logger.warning("passes of %s are not recorded: %s", shape, str(error).strip()[:200])
            yield None
        else:
            yield recorded


def fixed_shape(shape: PassShape, page_size: int) -> FixedShape:
    """What attention must know of a shape: the padding window counts as one, and so do its pages."""
    padding = -(-shape.rows // page_size) + shape.windows
    return FixedShape(
        windows=shape.windows + 1,
        rows=shape.rows,
        pages=shape.pages + padding,
        longest=max(shape.longest, shape.rows),
        masked=shape.kind is PassKind.TREE,
    )


def _tensors(packed: Packed) -> Iterator[torch.Tensor]:
    """Those that layers read; the batch's are the backend's affair."""
    for each in fields(packed):
        value = getattr(packed, each.name)
        if isinstance(value, torch.Tensor):
            yield value
