"""A real engine over a toy model, and a channel server for it, in this process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import uvloop

from prove_core.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from prove_core.engine.engine import Engine
from services.channel.client import Endpoint
from services.channel.errors import Loss
from services.channel.server import ChannelServer
from services.placement.load import NO_WISH, Load, Wish
from tests.core.toy import ToyRunner


def run_in_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run a test on the kind of event loop that replicas and Routers have."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def toy_engine(tokens: int = 4096, runner: type[ToyRunner] = ToyRunner) -> Engine:
    """A started engine over the toy model."""
    config = EngineConfig(
        model=ModelConfig(checkpoint="toy"),
        cache=CacheConfig(tokens=tokens),
        scheduler=SchedulerConfig(),
    )
    engine = Engine(runner(config.cache.page_size), config, name="toy")
    engine.start()
    return engine


class Replica:
    """An engine and its channel server, killable."""

    def __init__(self, tokens: int = 4096, runner: type[ToyRunner] = ToyRunner) -> None:
        self.engine = toy_engine(tokens, runner)
        self.server = ChannelServer(self.engine)
        self.endpoint = Endpoint("127.0.0.1", 0, self.server.token)
        self.name = self.server.token[:8]

    async def start(self) -> "Replica":
        port = await self.server.start("127.0.0.1")
        self.endpoint = Endpoint("127.0.0.1", port, self.server.token)
        return self

    async def stop(self) -> None:
        await self.server.stop()
        if self.engine.alive:
            self.engine.stop()

    async def idle(self) -> bool:
        """Whether every page comes back within two seconds."""
        for _ in range(200):
            stats = self.engine.stats()
            if stats.sessions == 0 and stats.free_pages == stats.total_pages:
                return True
            await asyncio.sleep(0.01)
        return False


@contextlib.asynccontextmanager
async def replicas(
    count: int = 1, tokens: int = 4096, runner: type[ToyRunner] = ToyRunner
) -> AsyncIterator[list[Replica]]:
    """`count` started replicas, stopped at the end."""
    started = [await Replica(tokens, runner).start() for _ in range(count)]
    try:
        yield started
    finally:
        for replica in started:
            await replica.stop()


class ToyLease:
    """A lease on a replica of this process."""

    def __init__(self, replica: Replica) -> None:
        self.endpoint = replica.endpoint
        self.replica = replica.name
        self.at = replica
        self.tokens = 0
        self.closed = False
        self._ended = asyncio.Event()

    def end(self) -> None:
        """The other side takes it back."""
        self._ended.set()

    async def ended(self) -> Loss:
        await self._ended.wait()
        return Loss.LEASE

    def close(self) -> None:
        self.closed = True


class ToyLessor:
    """Hands out leases on the given replicas as wished; without a wish, round and round.

    The i-th one's channel goes `through[i]` if given.
    """

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.replicas = list(replicas)
        self.leases: list[ToyLease] = []
        self.through: dict[int, Endpoint] = {}

    async def lease(self, session: str, wish: Wish = NO_WISH) -> ToyLease:
        by_name = {replica.name: replica for replica in self.replicas}
        wished = [by_name[name] for name in wish.order if name in by_name]
        lease = ToyLease(wished[0] if wished else self.replicas[len(self.leases) % len(self.replicas)])
        lease.tokens = wish.tokens
        lease.endpoint = self.through.get(len(self.leases), lease.endpoint)
        self.leases.append(lease)
        return lease

    async def loads(self) -> list[Load]:
        """What the replicas report."""
        return [self._load(replica) for replica in self.replicas]

    def _load(self, replica: Replica) -> Load:
        leases = [lease for lease in self.leases if lease.at is replica and not lease.closed]
        stats = replica.engine.stats()
        return Load(
            replica.name,
            capacity=replica.engine.capacity,
            reserved=sum(lease.tokens for lease in leases),
            sessions=len(leases),
            queued_rows=stats.queued_rows,
            passes=stats.passes,
            rows=stats.rows,
            pass_seconds=stats.pass_seconds,
        )
