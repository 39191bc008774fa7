"""A CUDA graph's behaviour on the CPU: what a function does to tensors is written down, then done again without it."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

Step = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]
_READS = {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::equal", "aten::is_nonzero"}


class _Writing(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func._schema.name in _READS:
            raise RuntimeError(f"{func._schema.name} in a recorded pass: the host cannot read what is not computed yet")
        options = dict(kwargs or {})
        out = func(*args, **options)
        self.steps.append((func, args, options, out))
        return out


class TapeRecorder:
    """Records operations on tensors: replaying runs these on the same storages, and none of the Python around them."""

    def record(self, body: Callable[[], None]) -> Callable[[], None]:
        body()  # as a warm-up: caches fill
        with _Writing() as tape:
            body()
        return lambda: _replay(tape.steps)


def _replay(steps: list[Step]) -> None:
    made: dict[int, torch.Tensor] = {}

    def now(tensor: torch.Tensor) -> torch.Tensor:
        return made.get(id(tensor), tensor)

    for func, args, kwargs, then in steps:
        new = func(*tree_map_only(torch.Tensor, now, args), **tree_map_only(torch.Tensor, now, kwargs))
        _note(then, new, made)


def _note(then: Any, new: Any, made: dict[int, torch.Tensor]) -> None:
    if isinstance(then, torch.Tensor):
        made[id(then)] = new
    elif isinstance(then, list | tuple):
        for old, other in zip(then, new, strict=True):
            _note(old, other, made)
