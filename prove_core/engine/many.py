"""Many completions or sessions of an engine, a bounded number of them at once."""

import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from prove_core.engine.engine import Engine
from prove_core.errors import ProveError
from prove_core.types import Finished, GenerateRequest, Step

T = TypeVar("T")


def in_threads(work: Callable[[int], T], count: int, concurrency: int) -> Iterator[T]:
    """`work` on 0 .. count - 1 in threads, results in order; the first error ends it once those under way are done."""
    pool = ThreadPoolExecutor(concurrency)
    try:
        for future in [pool.submit(work, index) for index in range(count)]:
            yield future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def complete_many(
    engine: Engine, requests: Sequence[GenerateRequest], concurrency: int
) -> Iterator[tuple[int, Step | Finished]]:
    """Pairs of a request's index and its next event, as they come; each request ends with its `Finished`.

    Raises what the engine answers. Whatever ends the iteration, no session is left in the engine.
    """
    events: queue.SimpleQueue[tuple[int, Step | Finished | ProveError]] = queue.SimpleQueue()
    waiting = iter(range(len(requests)))
    running: set[int] = set()

    def start_next() -> None:
        index = next(waiting, None)
        if index is not None:
            running.add(index)
            engine.generate(requests[index], lambda event: events.put((index, event)))

    try:
        for _ in range(concurrency):
            start_next()
        while running:
            index, event = events.get()
            if isinstance(event, ProveError):
                raise event
            if isinstance(event, Finished):
                running.remove(index)
                start_next()
            yield index, event
    finally:
        for index in running:
            engine.release(requests[index].session)
