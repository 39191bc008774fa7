"""How far transformers has got with a checkpoint's weights, told to a `Progress` in place of its own bar."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from transformers.utils import logging

from prove_core.model.progress import Progress


@contextmanager
def reporting(progress: Progress, name: str) -> Iterator[None]:
    """Inside the block, loading of weights is a step `name` that advances by tensors."""

    def bar(factory: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if options.get("desc") != "Loading weights" or not args:
            return factory(*args, **options)
        progress.stage(name, total=len(args[0]))
        return _advancing(args[0], progress)

    previous = logging.set_tqdm_hook(bar)
    try:
        yield
    finally:
        logging.set_tqdm_hook(previous)


def _advancing(items: Collection[Any], progress: Progress) -> Iterator[Any]:
    for item in items:
        yield item
        progress.advance(1)
