"""The REST API over two toy replicas on a real HTTP server, without Ray."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from opentelemetry.trace import Tracer

from prove_core.model.info import CheckpointInfo
from prove_core.types import Role
from services.api.http import create_app
from services.completions import ChatService, RoleAccess
from services.config.settings import Settings, parse_settings
from services.metrics.metric import Part
from services.metrics.registry import Identity, Registry
from services.metrics.router import RouterMetrics
from services.security.keys import Keys
from tests.core.text.vocabularies import byte_level
from tests.core.toy import ToyRunner
from tests.services.toy_engine import Replica, ToyLessor, replicas

CONTEXT = 2048
EOS = 1  # <|im_end|>, which the toy model emits now and then


@dataclass(frozen=True, slots=True)
class ToyServer:
    """A running server, a client for it, and what is behind it."""

    client: httpx.AsyncClient
    port: int
    service: ChatService
    proposer: Replica
    verifier: Replica
    registry: Registry

    async def ask(self, text: str = "the quick brown fox", **fields: Any) -> httpx.Response:
        """POST a chat completion."""
        return await self.client.post("/v1/chat/completions", json=body(text, **fields))

    async def idle(self) -> bool:
        """Whether no request runs and all pages of both roles come back within two seconds."""
        for _ in range(200):  # requests may still be on their way in
            if await self.proposer.idle() and await self.verifier.idle() and self.service.running == 0:
                return True
            await asyncio.sleep(0.01)
        return False


def body(text: str = "the quick brown fox", **fields: Any) -> dict[str, Any]:
    """A request's fields."""
    return {"model": "toy", "messages": [{"role": "user", "content": text}], **fields}


@contextlib.asynccontextmanager
async def toy_server(
    tokens: int = 4096,
    verifier: bool = True,
    runner: type[ToyRunner] = ToyRunner,
    tracer: Tracer | None = None,
    reports: bool = True,
    **settings: Any,
) -> AsyncIterator[ToyServer]:
    """Serve the toy pair; `settings` as in the YAML file. Without `reports` the Router admits whatever comes."""
    data = {"model": "toy", **({} if verifier else {"verifier": None}), **settings}
    async with (
        replicas(2, tokens, runner) as (p, v),
        _serving(parse_settings(data, "test"), p, v, verifier, tracer, reports) as server,
    ):
        yield server


@contextlib.asynccontextmanager
async def _serving(
    settings: Settings, p: Replica, v: Replica, verifier: bool, tracer: Tracer | None, reports: bool
) -> AsyncIterator[ToyServer]:
    tokenizer = byte_level()
    info = CheckpointInfo("toy", tokenizer, len(tokenizer), (EOS,), CONTEXT, 0, ())
    served = {Role.PROPOSER: p} | ({Role.VERIFIER: v} if verifier else {})
    roles = {role: _access(replica, reports) for role, replica in served.items()}
    registry = Registry(Identity(Part.ROUTER, "toy", settings.served_name))
    service = ChatService(settings, info, roles, RouterMetrics(registry), tracer)
    watch = asyncio.create_task(service.reception.watch())
    app = create_app(service, keys=Keys.load(settings.security))
    config = uvicorn.Config(app, port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield ToyServer(client, port, service, p, v, registry)
    finally:
        watch.cancel()
        server.should_exit = True
        await task


def _access(replica: Replica, reports: bool) -> RoleAccess:
    lessor = ToyLessor([replica])
    return RoleAccess(lessor, replica.engine.capacity, lessor.loads if reports else None)
