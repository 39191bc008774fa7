"""A Router without HTTP: a deployment of its own that runs two-model cycles over two replicas and times each."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from prove_core.config import EngineConfig
from prove_core.types import DecodingParams, GenerateRequest, Limits, Mode, Role
from services.app import model_deployment
from services.channel.client import ChannelPool
from services.driver import CycleTiming, complete
from services.lease import ServeLessor
from services.observability import MetricsSettings, Observed
from services.sessions import ReplicaSession
from services.settings import ModelSettings

APP_NAME = "prove-overhead"


class CycleProbe:
    """Runs completions of mode `prove` through one replica of each role."""

    def __init__(self, proposer: DeploymentHandle, verifier: DeploymentHandle) -> None:
        self._lessors = {Role.PROPOSER: ServeLessor(proposer), Role.VERIFIER: ServeLessor(verifier)}

    async def run(self, prompt: list[int], tokens: int, block_size: int) -> list[float]:
        """Milliseconds per cycle beyond its passes, in order."""
        timings: list[CycleTiming] = []
        channels = ChannelPool()
        sessions = {role: ReplicaSession("overhead", lessor, channels) for role, lessor in self._lessors.items()}
        params = DecodingParams(Mode.PROVE, block_size=block_size, theta=0.01)
        request = GenerateRequest("overhead", tuple(prompt), params, Limits(tokens))
        try:
            async for _ in complete(request, sessions, timings.append):
                pass
        finally:
            for session in sessions.values():
                session.close()
        return [timing.overhead_seconds * 1e3 for timing in timings]


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


def two_replicas(
    proposer: EngineConfig, verifier: EngineConfig, prompt: list[int], tokens: int, block_size: int
) -> list[float]:
    """Deploy both roles and the probe, run one completion, take them down again. Needs a running Ray Serve."""
    roles = ((Role.PROPOSER, proposer), (Role.VERIFIER, verifier))
    observed = Observed(model="overhead", metrics=MetricsSettings())
    bound: list[Any] = [model_deployment(role, ModelSettings(engine=engine), observed) for role, engine in roles]
    probe = serve.deployment(CycleProbe).options(ray_actor_options={"num_cpus": 0})
    handle = serve.run(probe.bind(*bound), name=APP_NAME, route_prefix=None)
    try:
        samples: list[float] = handle.run.remote(prompt, tokens, block_size).result(timeout_s=600)
        return samples
    finally:
        serve.delete(APP_NAME)
