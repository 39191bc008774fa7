"""The ingress deployment: gathers what it must know of checkpoint and replicas, then serves the REST API."""

import asyncio
from typing import Any

from fastapi import FastAPI
from ray.serve.handle import DeploymentHandle

from prove_core.types import Role
from services.api.http import create_app
from services.completions import ChatService, RoleAccess
from services.lease import ServeLessor
from services.preflight import read_checkpoints
from services.settings import Settings


class Router:
    """Serves once the replicas of both roles do: it asks each for its capacity first."""

    async def __init__(  # type: ignore[misc]  # Serve awaits it
        self, settings: dict[str, Any], proposer: DeploymentHandle, verifier: DeploymentHandle | None = None
    ) -> None:
        checked = Settings.model_validate(settings)
        info = await asyncio.to_thread(read_checkpoints, checked)
        handles = {Role.PROPOSER: proposer} | ({} if verifier is None else {Role.VERIFIER: verifier})
        roles = {role: await _access(handle) for role, handle in handles.items()}
        self._service = ChatService(checked, info, roles)

    def __serve_build_asgi_app__(self) -> FastAPI:
        return create_app(self._service)

    async def running(self) -> int:
        """Requests in progress here."""
        return self._service.running


async def _access(handle: DeploymentHandle) -> RoleAccess:
    facts = await handle.facts.remote()
    return RoleAccess(ServeLessor(handle), facts.capacity)
