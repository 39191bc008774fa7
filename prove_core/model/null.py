"""A runner without a model: everything but the passes costs what it costs, so their cost can be told apart."""

from collections.abc import Container, Sequence

import torch

from prove_core.attention.base import LayerSpec
from prove_core.attention.torch_backend import TorchAttention
from prove_core.kv.storage import KVStorage
from prove_core.model.pack import pack
from prove_core.model.window import PassOutput, SidePath, Window, WindowOutput
from prove_core.types import TokenIds


class NullRunner:
    """Implements `Runner`: packs and plans like `ModelRunner`, then answers from `token_at`, certain of everything."""

    def __init__(
        self, storage: KVStorage, specs: Sequence[LayerSpec], *, vocabulary: int, avoid: Container[int] = ()
    ) -> None:
        self._storage = storage
        self._backend = TorchAttention(storage, specs)
        self._vocabulary = vocabulary
        self._avoid = avoid

    def token_at(self, index: int) -> int:
        """The token at `index` of every sequence: never one of `avoid`."""
        token = (index * 2654435761 >> 7) % self._vocabulary
        while token in self._avoid:
            token = (token + 1) % self._vocabulary
        return token

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """See `Runner.run`; `seconds` is 0."""
        packed = pack(
            windows,
            page_size=self._storage.page_size,
            scratch_page=self._storage.scratch_page,
            placeholder_id=0,
            tile=1,
            device=torch.device("cpu"),
        )
        self._backend.plan(packed.batch)
        return PassOutput(outputs=[self._answer(window) for window in windows], seconds=0.0)

    def _answer(self, window: Window) -> WindowOutput:
        first = window.end - window.logits + 1
        argmax = tuple(self.token_at(index) for index in range(first, first + window.logits))
        agreed = tuple(float(a == b) for a, b in zip(argmax, window.targets, strict=False))
        behind = tuple(self._follows(window, side) for side in window.sides)
        groups = window.chosen(argmax, behind)
        drafts = tuple(self.token_at(group.index + i) for group in groups for i in range(group.known, group.count))
        return WindowOutput(argmax, (1.0,) * window.logits, agreed, drafts, (1.0,) * len(drafts), behind=behind)

    def _follows(self, window: Window, side: SidePath) -> TokenIds:
        first = window.follows(side) + 1
        return tuple(self.token_at(index) for index in range(first, first + side.count))
