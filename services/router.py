"""The ingress deployment: gathers what it must know of checkpoint and replicas, then serves the REST API."""

import asyncio
import os
from typing import Any

import ray
from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from prove_core.types import Role
from services.api.http import create_app
from services.completions import ChatService, RoleAccess
from services.config.preflight import check_sizes, read_checkpoints
from services.config.settings import Settings
from services.metrics.exporter import published, replica_registry
from services.metrics.latest import Latest
from services.metrics.metric import Part
from services.metrics.placement import PlacementMetrics
from services.metrics.replicas import ReplicaMetrics
from services.metrics.router import RouterMetrics
from services.metrics.targets import Target, targets
from services.replicas.members import Members
from services.replicas.switching import switch_often
from services.security.keys import Keys
from services.sessions.lease import ServeLessor
from services.telemetry.logs import configure
from services.telemetry.traces import tracer


class Router:
    """Serves once the replicas of both roles do: it asks each for its capacity first."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, settings: dict[str, Any], proposer: DeploymentHandle, verifier: DeploymentHandle | None = None
    ) -> None:
        switch_often()
        checked = Settings.model_validate(settings)
        self._keys = Keys.load(checked.security)
        context = serve.get_replica_context()
        configure(checked.logging, role=Part.ROUTER.value, replica=context.replica_id.unique_id)
        registry = replica_registry(Part.ROUTER, checked.served_name)
        metrics = RouterMetrics(registry)
        info = await asyncio.to_thread(read_checkpoints, checked)
        handles = {Role.PROPOSER: proposer} | ({} if verifier is None else {Role.VERIFIER: verifier})
        roles = {role: await _access(handle) for role, handle in handles.items()}
        check_sizes(checked, info.context_length, {role: access.capacity for role, access in roles.items()})
        self._service = ChatService(
            checked, info, roles, metrics, tracer(checked.tracing, context.replica_id.unique_id)
        )
        self._watch = asyncio.create_task(self._service.reception.watch())
        self._members = Members(context.app_name)
        groups = Latest(lambda: asyncio.to_thread(ray.util.placement_group_table))
        running = Latest(self._members.replicas)
        PlacementMetrics(registry, context.app_name, groups)
        ReplicaMetrics(registry, running)
        self._watches = [asyncio.create_task(each.watch()) for each in (groups, running)]
        self._metrics = published(registry) if checked.metrics.enabled else {}

    def __serve_build_asgi_app__(self) -> FastAPI:
        return create_app(self._service, self._targets if self._metrics else None, self._keys, returns_ids=False)

    async def _targets(self) -> list[Target]:
        return targets(await self._members.replicas(), self._service.settings.served_name)

    def record_replica_metadata(self) -> dict[str, Any]:
        """Published with this replica in Serve's view of the deployment."""
        return {"pid": os.getpid(), "host": ray.util.get_node_ip_address(), **self._metrics}

    async def tasks(self) -> int:
        """How many run on this replica's event loop; for tests and benchmarks, which look for those left over."""
        return len(asyncio.all_tasks())

    async def running(self) -> int:
        """Requests in progress here."""
        return self._service.running


async def _access(handle: DeploymentHandle) -> RoleAccess:
    facts = await handle.facts.remote()
    lessor = ServeLessor(handle)
    return RoleAccess(lessor, facts.capacity, lessor.loads)
