"""A Router without HTTP: a deployment of its own that runs two-model cycles over two replicas and times each."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from prove_core.config import EngineConfig
from prove_core.engine.stats import EngineStats
from prove_core.types import DecodingParams, GenerateRequest, Limits, Mode, Role, Step, TokenIds
from services.app import model_deployment
from services.channel.client import ChannelPool
from services.config.observability import Observed
from services.config.settings import ModelSettings
from services.sessions.driver import CycleTiming, Observer, complete
from services.sessions.healing import Healing
from services.sessions.lease import ServeLessor
from services.sessions.replica_session import ReplicaSession

APP_NAME = "prove-overhead"


@dataclass(frozen=True, slots=True)
class Probed:
    """One completion: its ids, cycles and seconds, and by role the passes that its replica ran and their seconds."""

    tokens: TokenIds
    cycles: int
    seconds: float
    passes: dict[Role, int]
    pass_seconds: dict[Role, float]


class CycleProbe:
    """Runs completions of mode `prove` through one replica of each role."""

    def __init__(self, proposer: DeploymentHandle, verifier: DeploymentHandle) -> None:
        self._handles = {Role.PROPOSER: proposer, Role.VERIFIER: verifier}

    async def overheads(self, prompt: list[int], tokens: int, block_size: int) -> list[float]:
        """Milliseconds per cycle beyond its passes, in order."""
        timings: list[CycleTiming] = []
        params = DecodingParams(Mode.PROVE, block_size=block_size, theta=0.01)
        await self._complete(GenerateRequest("overhead", tuple(prompt), params, Limits(tokens)), timings.append)
        return [timing.overhead_seconds * 1e3 for timing in timings]

    async def decode(self, request: GenerateRequest) -> Probed:
        """Run one completion."""
        before = await self._stats()
        begin = time.perf_counter()
        steps = await self._complete(request)
        seconds = time.perf_counter() - begin
        after = await self._stats()
        return Probed(
            tuple(token for step in steps for token in step.tokens),
            sum(step.cost.cycles for step in steps),
            seconds,
            {role: after[role].passes - before[role].passes for role in Role},
            {role: after[role].pass_seconds - before[role].pass_seconds for role in Role},
        )

    async def _stats(self) -> dict[Role, EngineStats]:
        return {role: await handle.stats.remote() for role, handle in self._handles.items()}

    async def _complete(self, request: GenerateRequest, observe: Observer | None = None) -> list[Step]:
        channels = ChannelPool()
        sessions = {
            role: ReplicaSession(request.session, ServeLessor(handle), channels)
            for role, handle in self._handles.items()
        }
        try:
            return [event async for event in complete(request, sessions, observe) if isinstance(event, Step)]
        finally:
            for session in sessions.values():
                session.close()
            await channels.close()


@contextmanager
def local_ray() -> Iterator[None]:
    """A Ray Serve of this process's own, without an HTTP proxy."""
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        serve.start(proxy_location="Disabled")
        yield
    finally:
        serve.shutdown()
        ray.shutdown()


@contextmanager
def probing(proposer: EngineConfig, verifier: EngineConfig) -> Iterator[DeploymentHandle]:
    """A `CycleProbe` over a replica of each role, taken down at the end. Needs a running Ray Serve."""
    roles = ((Role.PROPOSER, proposer), (Role.VERIFIER, verifier))
    observed, limit = Observed(model="overhead"), Healing().pass_limit_s
    bound: list[Any] = [model_deployment(role, ModelSettings(engine=engine), observed, limit) for role, engine in roles]
    probe = serve.deployment(CycleProbe).options(ray_actor_options={"num_cpus": 0})
    handle = serve.run(probe.bind(*bound), name=APP_NAME, route_prefix=None)
    try:
        yield handle
    finally:
        serve.delete(APP_NAME)
