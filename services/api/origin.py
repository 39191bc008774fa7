"""`x-request-id`: taken from the client or made here, and returned with every reply, refusals and failures included."""

from collections.abc import MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from services.api.errors import INVALID_VALUE, ApiError, Refused, response
from services.telemetry.origin import CURRENT_ID, REQUEST_ID, Origin

HEADER = "x-request-id"


class RequestIds:
    """The outermost middleware: each request gets an `Origin`, in `request.state.origin`.

    `returned`: whether replies carry the id from here. Behind Ray Serve they don't: its proxy adds it, come what may.
    """

    def __init__(self, app: ASGIApp, refused: Refused, *, returned: bool = True) -> None:
        self._app = app
        self._refused = refused
        self._returned = returned

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on; what nobody caught is answered here, so that this reply has an id too."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get(HEADER)
        valid = given is None or REQUEST_ID.fullmatch(given)
        origin = Origin.new(given if valid else None, headers.get("traceparent"))
        scope.setdefault("state", {})["origin"] = origin
        CURRENT_ID.set(origin.id)
        reply = _Reply(origin.id if self._returned else None, send)
        if not valid:
            message = f"{HEADER} must be 1 to 128 letters, digits or . _ : @ = + -"
            refusal = ApiError(400, message, param=HEADER, code=INVALID_VALUE)
            self._refused(scope, refusal)
            await response(refusal)(scope, receive, reply.send)
            return
        try:
            await self._app(scope, receive, reply.send)
        except Exception as error:
            if reply.begun:
                raise
            await response(error)(scope, receive, reply.send)


class _Reply:
    """Adds the id to a reply's headers."""

    def __init__(self, id: str | None, send: Send) -> None:
        self.begun = False
        self._id = id
        self._send = send

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            if self._id is not None:
                MutableHeaders(scope=message)[HEADER] = self._id
        await self._send(message)
