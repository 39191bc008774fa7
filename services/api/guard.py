"""The check of API keys, before anything else sees a request."""

from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from services.api.errors import ApiError, Refused, response
from services.security.keys import Keys

OPEN = ("/", "/health")  # the page asks its reader for a key; whoever watches the server's health has none
OPEN_BELOW = "/static/"


class Guard:
    """Middleware: answers 401 to requests without a key that is accepted."""

    def __init__(self, app: ASGIApp, keys: Keys, refused: Refused) -> None:
        self._app = app
        self._keys = keys
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and not _is_open(scope["path"]) and not self._admits(scope["headers"]):
            error = _refusal(scope["headers"])
            self._refused(scope, error)
            reply = response(error)
            reply.headers["WWW-Authenticate"] = "Bearer"
            await reply(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _admits(self, headers: Sequence[tuple[bytes, bytes]]) -> bool:
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, key = given[0].partition(b" ")
        return scheme.lower() == b"bearer" and self._keys.accept(key.strip())


def _is_open(path: str) -> bool:
    return path in OPEN or path.startswith(OPEN_BELOW)


def _refusal(headers: Sequence[tuple[bytes, bytes]]) -> ApiError:
    if any(name == b"authorization" for name, _ in headers):
        message = "Incorrect API key provided"
    else:
        message = "No API key provided: send it as `Authorization: Bearer KEY`"
    return ApiError(401, message, code="invalid_api_key")
