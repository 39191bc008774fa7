"""The page at `/`: a client of the public API that shows how text is decoded. Its files name no other host."""

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response

from services.page.assets import Asset, read_assets

READ = ["GET", "HEAD"]
HEADERS = {
    # Nothing but this server's own files runs, and only this server is asked.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # kept, but asked for again: an upgrade shows at once, and 304 is cheap
}


def page_router() -> APIRouter:
    """Routes `/` and `/static/...`. They need no key: what they send is the same for everybody."""
    router = APIRouter()
    page, assets = read_assets()

    @router.api_route("/", methods=READ)
    async def index(request: Request) -> Response:
        return _reply(page, request)

    @router.api_route("/static/{name}", methods=READ)
    async def static(name: str, request: Request) -> Response:
        if name not in assets:
            raise HTTPException(404)
        return _reply(assets[name], request)

    return router


def _reply(asset: Asset, request: Request) -> Response:
    headers = {**HEADERS, "ETag": asset.etag}
    known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
    if asset.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, media_type=asset.media_type, headers=headers)
