"""Reading a request's body: a content type we can parse, no larger than allowed."""

from starlette.requests import ClientDisconnect, Request

from services.api.errors import ApiError, body_too_large, client_closed

_DIGITS = 18  # of a length; Python refuses to read numbers of thousands


async def read_json_body(request: Request, limit: int) -> bytes:
    """The bytes of a JSON body of at most `limit` bytes.

    Raises `ApiError` (400 wrong type, 413 too large, 499 the client left before its end).
    """
    _check_headers(request)
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and (len(length) > _DIGITS or int(length) > limit):
        raise body_too_large(limit)
    try:
        return await _read(request, limit)
    except ClientDisconnect:
        raise client_closed() from None


async def _read(request: Request, limit: int) -> bytes:
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
