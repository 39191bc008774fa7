"""Many completions of one engine, a bounded number of them at once."""

import queue
from collections.abc import Iterator, Sequence

from prove_core.engine.engine import Engine
from prove_core.errors import ProveError
from prove_core.types import Finished, GenerateRequest, Step


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
