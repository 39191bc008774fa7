"""Reading a request's body: a content type we can parse, no larger than allowed."""

from starlette.requests import Request

from services.api.errors import ApiError, body_too_large


async def read_json_body(request: Request, limit: int) -> bytes:
    """The bytes of a JSON body of at most `limit` bytes. Raises `ApiError` (400 wrong type, 413 too large)."""
    _check_headers(request)
    if (length := request.headers.get("content-length", "")).isdigit() and int(length) > limit:
        raise body_too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise body_too_large(limit)
    return bytes(body)


def _check_headers(request: Request) -> None:
    kind, *parameters = (part.strip().lower() for part in request.headers.get("content-type", "").split(";"))
    # A missing type is JSON: curl and scripts often leave it out.
    if kind not in ("", "application/json") and not (kind.startswith("application/") and kind.endswith("+json")):
        raise ApiError(400, f"The Content-Type must be application/json, not {kind}", code="invalid_content_type")
    for parameter in parameters:
        if parameter.startswith("charset=") and parameter[8:].strip('"') not in ("utf-8", "utf8"):
            raise ApiError(400, "The request body must be UTF-8", code="invalid_content_type")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise ApiError(400, "A compressed request body is not supported", code="invalid_content_encoding")
