"""Every failure in OpenAI's shape: {"error": {"message", "type", "param", "code"}} with the right status."""

import logging
from collections.abc import Callable, Sequence

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.types import Scope

from prove_core.errors import ContextLengthExceeded, EngineStopped, PoolExhausted, ProveError, RequestError
from services.channel.errors import ReplicaUnavailable

log = logging.getLogger(__name__)

INVALID = "invalid_request_error"
INVALID_VALUE = "invalid_value"  # the code of a field that is known and has a wrong value
LONGEST_MESSAGE = 1000
UNAVAILABLE_RETRY_S = 2
CLIENT_CLOSED_REQUEST = 499


class ApiError(Exception):
    """A failure as the client sees it. `retry_after_s` becomes the header Retry-After."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.param = param
        self.code = code
        self.headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}

    def body(self) -> dict[str, dict[str, str | None]]:
        """The JSON body."""
        message = _printable(str(self))
        param = None if self.param is None else _printable(self.param)
        return {"error": {"message": message, "type": self.type, "param": param, "code": self.code}}


Refused = Callable[[Scope, ApiError], None]
"""Told of a request that a middleware refuses."""


def model_not_found(name: str) -> ApiError:
    """404: the request names a model that is not served here."""
    return ApiError(404, f"The model '{name}' does not exist", param="model", code="model_not_found")


def body_too_large(limit: int) -> ApiError:
    """413: the body has more than `limit` bytes."""
    return ApiError(413, f"The request body is larger than {limit} bytes", code="request_too_large")


def client_closed() -> ApiError:
    """499: nobody waits for the reply any more; it tells logs and metrics."""
    return ApiError(CLIENT_CLOSED_REQUEST, "The client closed the connection", code="client_closed")


def overloaded(retry_after_s: int = 1) -> ApiError:
    """429: too many requests are waiting already."""
    message = "The server is at its limit of requests; please retry shortly"
    return ApiError(429, message, type="rate_limit_error", code="overloaded", retry_after_s=retry_after_s)


def timed_out(seconds: float) -> ApiError:
    """504: the request was not complete within its deadline."""
    message = f"The request was not complete within {seconds:g} s"
    return ApiError(504, message, type="server_error", code="timeout")


def unavailable(message: str, retry_after_s: int = UNAVAILABLE_RETRY_S) -> ApiError:
    """503: the request is fine, but no replica can take it now."""
    return ApiError(503, message, type="server_error", code="unavailable", retry_after_s=retry_after_s)


def from_validation(error: ValidationError | RequestValidationError) -> ApiError:
    """400 for the first complaint of pydantic. Never echoes the request."""
    details: Sequence[ErrorDetails] = error.errors()
    first = details[0]
    kind, context = first["type"], first.get("ctx", {})
    if not first["loc"] and kind == "json_invalid":
        return ApiError(400, f"The request body is not valid JSON: {context['error']}", code="invalid_json")
    if not first["loc"] and kind == "model_type":
        return ApiError(400, "The request body must be a JSON object", code="invalid_json")
    own = "predicate" in context
    loc = (*first["loc"], context["param"]) if own and context["param"] else first["loc"]
    param = _path(loc)
    if kind == "extra_forbidden":
        message = f"Unrecognized request argument supplied: {param}"
        return ApiError(400, message, param=param, code="unknown_parameter")
    if kind == "missing":
        return ApiError(400, f"Missing required parameter: '{param}'", param=param, code="missing_required_parameter")
    if own:
        return ApiError(400, f"{param} {context['predicate']}", param=param, code=kind)
    message = first["msg"].replace("Tuple", "List").replace(" after validation", "")
    return ApiError(400, f"{param}: {message}", param=param, code=INVALID_VALUE)


def to_api_error(error: BaseException) -> ApiError:
    """Any failure as the client may see it; what is not meant for clients becomes a bare 500 and goes to the log."""
    shown = expected(error)
    if shown is not None:
        return shown
    log.error("request failed", exc_info=error)
    return ApiError(500, "The server had an error while processing your request", type="server_error")


def expected(error: BaseException) -> ApiError | None:
    """A failure that has a meaning for the client, as the client sees it."""
    match error:
        case ApiError():
            return error
        case ValidationError() | RequestValidationError():
            return from_validation(error)
        case HTTPException():
            return ApiError(error.status_code, str(error.detail))
        case RequestError():
            return _from_request(error)
        case EngineStopped() | ReplicaUnavailable():
            return unavailable(str(error))
    return None


def _from_request(error: RequestError) -> ApiError:
    if isinstance(error, PoolExhausted):
        return ApiError(400, str(error), param=error.param or "messages", code="cache_too_small")
    code = "context_length_exceeded" if isinstance(error, ContextLengthExceeded) else INVALID_VALUE
    return ApiError(400, str(error), param=error.param, code=code)


def response(error: BaseException) -> JSONResponse:
    """The HTTP response for a failure."""
    shown = to_api_error(error)
    return JSONResponse(shown.body(), shown.status, headers=shown.headers)


def install(app: FastAPI) -> None:
    """Answer every failure of `app` in OpenAI's shape: our errors, unknown routes, wrong methods, bugs."""
    for kind in (ApiError, ProveError, RequestValidationError, Exception):
        app.add_exception_handler(kind, _handle)
    app.add_exception_handler(HTTPException, _handle_http)


async def _handle(request: Request, error: Exception) -> JSONResponse:
    return response(error)


async def _handle_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    shown = ApiError(error.status_code, str(error.detail))
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        message = f"Method {request.method} is not allowed for {request.url.path}; allowed: {allowed}"
        shown = ApiError(405, message, code="method_not_allowed")
    elif error.status_code == 404:
        unknown = f"Unknown request URL: {request.method} {request.url.path}"
        hint = "POST /v1/chat/completions and GET /v1/models are served"
        shown = ApiError(404, f"{unknown}; {hint}", code="unknown_url")
    return JSONResponse(shown.body(), shown.status, headers=error.headers)


def _path(loc: Sequence[str | int]) -> str:
    """("messages", 0, "content") -> "messages[0].content"."""
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return path.removeprefix(".")


def _printable(text: str) -> str:
    """Text of a message that is safe to encode and not too long, whatever a client sent."""
    safe = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return safe if len(safe) <= LONGEST_MESSAGE else safe[:LONGEST_MESSAGE] + "..."
