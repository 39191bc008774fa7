"""Ranks of tests: threads of this process, each with its own model, over real gloo."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from unittest.mock import patch

import torch

from prove_core.config import EngineConfig
from prove_core.engine.build import BuiltEngine, build_engine, follow_engine
from prove_core.model import loader
from prove_core.model.parallel import LeadingRunner
from prove_core.model.place import Place
from prove_core.model.ranks import Ranks, join_ranks, open_store

T = TypeVar("T")
HERE = "127.0.0.1"


class Group:
    """`size` ranks, each to be run in a thread of its own."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._store = open_store(HERE)
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []

    def join(self, rank: int) -> Ranks:
        """Meet the others; blocks until all do."""
        place = Place(rank, self.size, HERE, HERE, self._store.port)
        return join_ranks(place, torch.device("cpu"), deterministic=True)

    def start(self, work: Callable[[Ranks], None], rank: int) -> None:
        """Run one rank's part in a thread."""

        def run() -> None:
            try:
                work(self.join(rank))
            except BaseException as error:
                self._errors.append(error)

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def end(self) -> None:
        """Wait for the threads; raises what the first of them raised."""
        for thread in self._threads:
            thread.join(timeout=120)
            assert not thread.is_alive()
        if self._errors:
            raise self._errors[0]


def on_all_ranks(size: int, work: Callable[[Ranks], T]) -> list[T]:
    """What each rank makes of `work`, in order of rank."""
    group = Group(size)
    results: dict[int, T] = {}
    for rank in range(size):
        group.start(lambda ranks: results.__setitem__(ranks.rank, work(ranks)), rank)
    group.end()
    return [results[rank] for rank in range(size)]


@contextmanager
def parallel_engine(config: EngineConfig, size: int, *, plans: bool = False) -> Iterator[BuiltEngine]:
    """A started engine of `size` ranks; at the end all of them must have ended well."""
    group = Group(size)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # ranks share this machine's cores
    with patch.object(loader, "_weights", _one_by_one(loader._weights)):
        for rank in range(1, size):
            group.start(lambda ranks: follow_engine(config, ranks), rank)
        built = build_engine(config, name="ranks", plans=plans, ranks=group.join(0))
    try:
        yield built
    finally:
        built.engine.stop()
        runner = built.engine._runner
        assert isinstance(runner, LeadingRunner)
        runner.close()
        torch.set_num_threads(threads)
    group.end()


def _one_by_one(work: Callable[..., T]) -> Callable[..., T]:
    """transformers' loading is not made for threads; ranks elsewhere are processes."""
    lock = threading.Lock()

    def locked(*args: object) -> T:
        with lock:
            return work(*args)

    return locked
