"""A TCP relay that can go silent without closing: what a suspended process or a cut cable looks like."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from services.channel.client import Endpoint


class Relay:
    """Forwards bytes both ways; while frozen it keeps them, and passes them on afterwards.

    It freezes by itself once `answer_bytes` have come back from behind.
    """

    def __init__(self, behind: Endpoint, answer_bytes: int) -> None:
        self._behind = behind
        self._answer_bytes = answer_bytes
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.endpoint = behind

    def freeze(self) -> None:
        """Nothing passes any more, in either direction."""
        self._flowing.clear()

    def thaw(self) -> None:
        """What was kept passes on, late."""
        self._flowing.set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        far_reader, far_writer = await asyncio.open_connection(self._behind.host, self._behind.port)
        for pump in (self._pump(reader, far_writer), self._answers(far_reader, writer)):
            task = asyncio.create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self._flowing.wait()
                sink.write(data)
        await self._flowing.wait()
        sink.close()

    async def _answers(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while self._answer_bytes and (data := await source.read(self._answer_bytes)):
            self._answer_bytes -= len(data)
            sink.write(data)
        self.freeze()
        await self._pump(source, sink)

    def stop(self) -> None:
        """Drop everything."""
        for task in self._tasks:
            task.cancel()


@contextlib.asynccontextmanager
async def relay(behind: Endpoint, answer_bytes: int = 1 << 30) -> AsyncIterator[Relay]:
    """A relay in front of `behind`, at an endpoint of its own."""
    made = Relay(behind, answer_bytes)
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.endpoint = Endpoint("127.0.0.1", server.sockets[0].getsockname()[1], behind.token)
    try:
        yield made
    finally:
        server.close()
        made.stop()
