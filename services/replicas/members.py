"""The running replicas of the application on all nodes, Routers included, as Serve's controller knows them."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import ray
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE

CONTROLLER_TIMEOUT_S = 5.0


class ReplicaId(Protocol):
    """How Serve names a replica."""

    unique_id: str


class Replica(Protocol):
    """What Serve's controller tells of a running replica. Its metadata is what `record_replica_metadata` returned."""

    replica_id: ReplicaId
    replica_metadata: Mapping[str, Any]


class Members:
    """The replicas of one Serve application."""

    def __init__(self, application: str) -> None:
        self._application = application

    async def replicas(self) -> dict[str, list[Replica]]:
        """By deployment name, as the controller knows them now. Raises `TimeoutError` and Ray's errors."""
        async with asyncio.timeout(CONTROLLER_TIMEOUT_S):
            return self._ours(await _running())

    def _ours(self, running: Mapping[Any, Sequence[Replica]]) -> dict[str, list[Replica]]:
        return {key.name: list(found) for key, found in running.items() if key.app_name == self._application}


def _running() -> Any:
    # Handles know the replicas of other deployments only, and `serve.status` tells no metadata.
    controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    return controller._all_running_replicas.remote()
