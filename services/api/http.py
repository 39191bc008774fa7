"""The REST API: routes and what happens when the client goes away. Knows no Ray: any ASGI server can run it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from services.api import errors
from services.api.body import read_json_body
from services.api.discovery import Targets, discovery_routes
from services.api.guard import Guard
from services.api.openapi import describe
from services.api.origin import RequestIds
from services.api.replies import ModelCard, ModelList
from services.api.schema import ChatCompletionRequest
from services.api.streaming import collect, started, stream
from services.completions import ChatService
from services.page.routes import page_router
from services.security.keys import Keys
from services.telemetry.origin import Origin

T = TypeVar("T")
CHAT = "/v1/chat/completions"
READ = ["GET", "HEAD"]  # the HTTP server leaves the body out of a reply to HEAD


def create_app(
    service: ChatService, targets: Targets | None = None, keys: Keys | None = None, *, returns_ids: bool = True
) -> FastAPI:
    """The API over `service`; `targets` lists where metrics are, if anywhere; `keys` open it, if it is not open.

    `returns_ids`: see `RequestIds`.
    """
    app = FastAPI(title="ProVe", openapi_url=None, docs_url=None, redoc_url=None)
    errors.install(app)

    def refused(scope: Scope, error: errors.ApiError) -> None:
        if scope["method"] == "POST" and scope["path"] == CHAT:  # nothing else counts as a request
            service.refused(error)

    if keys is not None:
        app.add_middleware(Guard, keys=keys, refused=refused)
    app.add_middleware(RequestIds, refused=refused, returned=returns_ids)  # the last one is the outermost
    app.include_router(page_router())
    card = ModelCard(id=service.settings.served_name, created=int(time.time()), decoding=service.decoding)

    @app.api_route("/health", methods=READ)
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.api_route("/v1/models", methods=READ)
    async def models() -> ModelList:
        return ModelList(data=[card])

    @app.api_route("/v1/models/{name:path}", methods=READ)
    async def model(name: str) -> ModelCard:
        if name != card.id:
            raise errors.model_not_found(name)
        return card

    @app.post(CHAT)
    async def chat_completions(request: Request) -> Response:
        with service.refusing():
            body = ChatCompletionRequest.parse(await read_json_body(request, service.settings.limits.max_body_bytes))
        reply = await unless_disconnected(request, _chat(service, body, request.state.origin))
        return reply if reply is not None else Response(status_code=errors.CLIENT_CLOSED_REQUEST)

    description = describe(card.id, service.settings.limits, guarded=keys is not None)

    @app.api_route("/openapi.json", methods=READ)
    async def openapi() -> JSONResponse:
        return JSONResponse(description)

    if targets is not None:
        app.include_router(discovery_routes(targets))
    return app


async def _chat(service: ChatService, request: ChatCompletionRequest, origin: Origin) -> Response:
    with service.refusing():
        plan = await service.plan(request, origin)
    events = service.events(plan)
    if not request.stream:
        return JSONResponse((await collect(events, plan.head)).model_dump(mode="json"))
    frames = stream(await started(events), plan.head, include_usage=request.include_usage)
    return ServerSentEvents(frames)


async def unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`, or None when the client closes the connection first, which cancels it."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        gone.cancel()
        task.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)
    return None if task.cancelled() else task.result()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class ServerSentEvents(StreamingResponse):
    """Sends frames as they come; whatever ends the response also closes their generator, at once."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        super().__init__(frames, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._frames):
            await super().__call__(scope, receive, send)
