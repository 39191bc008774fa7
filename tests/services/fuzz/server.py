"""A toy server in a thread of its own, for clients that block."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import uvloop

from tests.services.toy_server import ToyServer, toy_server

T = TypeVar("T")
START_S = 60.0


@dataclass(frozen=True, slots=True)
class Threaded:
    """The server and the loop it runs in."""

    server: ToyServer
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.server.port}"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work` in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(START_S)


@contextlib.contextmanager
def threaded_server(**settings: Any) -> Iterator[Threaded]:
    """`toy_server`, running until the block ends."""
    ready: list[Threaded] = []
    started, ended = threading.Event(), threading.Event()

    async def serve() -> None:
        async with toy_server(**settings) as server:
            ready.append(Threaded(server, asyncio.get_running_loop()))
            started.set()
            await asyncio.to_thread(ended.wait)

    def main() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    try:
        assert started.wait(START_S)
        yield ready[0]
    finally:
        ended.set()
        thread.join(START_S)
