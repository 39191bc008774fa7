"""The class behind the deployments `Proposer` and `Verifier`: one engine, one channel, many leases."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from typing import Any

import ray
from ray import serve

from prove_core.engine.engine import Engine
from prove_core.engine.stats import EngineStats
from prove_core.model.place import Place
from services.channel.client import Endpoint
from services.channel.server import ChannelServer
from services.config.observability import Observed
from services.config.settings import ModelSettings
from services.metrics.engine import EngineMetrics
from services.metrics.exporter import published, replica_registry
from services.metrics.metric import Part
from services.placement.load import NO_WISH, Load, Wish
from services.replicas.health import Health
from services.replicas.ranks import RankFacts, RankGroup, joined, own_facts, use_cores
from services.replicas.switching import switch_often
from services.scaling.meter import Meter
from services.sessions.lease import Facts, Grant
from services.telemetry.logs import configure


class EngineReplica:
    """Hosts an engine. Serve handles carry leases and health checks; cycles travel over the channel."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, role: str, settings: dict[str, Any], observed: dict[str, Any], pass_limit_s: float
    ) -> None:
        told = Observed.model_validate(observed)
        configure(told.logging, role=role, replica=serve.get_replica_context().replica_id.unique_id)
        switch_often()
        part = ModelSettings.model_validate(settings)
        self._ranks = None
        if part.tensor_parallel > 1:
            self._ranks = await RankGroup.start(role, settings, part.bundles or [], told.logging)
        self._engine = await self._loaded(role, part)
        self._server = ChannelServer(self._engine)
        self._meter = Meter(time.monotonic())
        self._health = Health(self._engine, self._server, pass_limit_s, self._ranks)
        self._name = serve.get_replica_context().replica_id.unique_id
        self._reserved: dict[str, int] = {}  # tokens by leased session
        host = ray.util.get_node_ip_address()
        self._endpoint = Endpoint(host, await self._server.start(host), self._server.token)
        self._metrics = self._export(Part(role), told)

    async def _loaded(self, role: str, settings: ModelSettings) -> Engine:
        """In a thread: loading takes seconds, and Serve must be able to ask for health meanwhile."""
        if self._ranks is None:
            return await asyncio.to_thread(_build, role, settings)
        return await self._ranks.beside(asyncio.to_thread(_build, role, settings, self._ranks.place))

    def _export(self, role: Part, observed: Observed) -> dict[str, int]:
        if not observed.metrics.enabled:
            return {}
        registry = replica_registry(role, observed.model)
        self._engine.observe(EngineMetrics(registry, self._engine.stats))
        return published(registry)

    async def lease(self, session: str, wish: Wish = NO_WISH) -> AsyncGenerator[Grant, None]:
        """Yield this replica's address, then hold the session until the caller cancels or the replica has failed."""
        self._reserved[session] = wish.tokens
        try:
            if not self._health.failed.is_set():
                yield Grant(self._endpoint, self._name)
            await self._health.failed.wait()
        finally:
            self._reserved.pop(session, None)
            self._server.release(session)

    async def load(self) -> Load:
        """What Routers place sessions by."""
        stats = self._engine.stats()
        return Load(
            self._name,
            capacity=self._engine.capacity,
            reserved=sum(self._reserved.values()),
            sessions=len(self._reserved),
            queued_rows=stats.queued_rows,
            passes=stats.passes,
            rows=stats.rows,
            pass_seconds=stats.pass_seconds,
        )

    async def tasks(self) -> int:
        """How many run on this replica's event loop; for tests and benchmarks, which look for those left over."""
        return len(asyncio.all_tasks())

    async def facts(self) -> Facts:
        """What a Router must know before it admits requests."""
        return Facts(self._engine.capacity, os.getpid())

    async def ranks(self) -> list[RankFacts]:
        """Where the processes of this replica run: one per rank."""
        return [own_facts(0)] if self._ranks is None else await self._ranks.facts()

    async def stats(self) -> EngineStats:
        """The engine's counters and gauges."""
        return self._engine.stats()

    def record_autoscaling_stats(self) -> dict[str, float]:
        """For the autoscaling policy of this role; Serve asks every second or so."""
        reserved = sum(self._reserved.values()) / self._engine.capacity
        return self._meter.read(self._engine.stats(), reserved, time.monotonic())

    async def check_health(self) -> None:
        """Raise when the engine thread has ended or hangs, so that Serve replaces this replica."""
        await self._health.check()

    def record_replica_metadata(self) -> dict[str, Any]:
        """Published with this replica in Serve's view of the deployment. Never the token."""
        return {"pid": os.getpid(), "host": self._endpoint.host, "port": self._endpoint.port, **self._metrics}


def _build(role: str, settings: ModelSettings, place: Place | None = None) -> Engine:
    ranks = None if place is None else joined(settings, place)
    if ranks is None:
        use_cores(1)
    from prove_core.engine.build import build_engine  # noqa: PLC0415 - takes seconds: not on the event loop

    return build_engine(
        settings.engine,
        name=role,
        plans=role == "proposer",
        memory_fraction=settings.memory_fraction,
        ranks=ranks,
    ).engine
