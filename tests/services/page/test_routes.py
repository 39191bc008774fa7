"""The page's files over HTTP: types, headers, validation, and that they name nothing from elsewhere."""

import re

import httpx
import pytest
from fastapi import FastAPI

from services.api import errors
from services.api.schema import DecodingOptions
from services.page.assets import read_assets
from services.page.routes import page_router
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import toy_server

PAGE, ASSETS = read_assets()
TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


def client() -> httpx.AsyncClient:
    app = FastAPI()
    errors.install(app)
    app.include_router(page_router())
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


def test_every_file_has_its_type_and_runs_nothing_else() -> None:
    async def run() -> None:
        async with client() as http:
            for path in ("/", *(f"/static/{name}" for name in ASSETS)):
                reply = await http.get(path)
                assert reply.status_code == 200
                assert reply.headers["content-type"].startswith(TYPES.get(path.rpartition(".")[2], "text/html"))
                assert "default-src 'none'" in reply.headers["content-security-policy"]
                assert reply.headers["x-content-type-options"] == "nosniff"
                assert reply.headers["cache-control"] == "no-cache"
                assert len(reply.content) == int(reply.headers["content-length"])

    run_in_loop(run())


def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    async def run() -> None:
        async with client() as http:
            tag = (await http.get("/")).headers["etag"]
            for sent in (tag, f"W/{tag}", f'"other", {tag}'):
                reply = await http.get("/", headers={"If-None-Match": sent})
                assert (reply.status_code, reply.content, reply.headers["etag"]) == (304, b"", tag)
            assert (await http.get("/", headers={"If-None-Match": '"other"'})).status_code == 200

    run_in_loop(run())


@pytest.mark.parametrize("path", ["/static/none.js", "/static/", "/static", "/static/..%2findex.html", "/static/%00"])
def test_what_is_no_file_is_404(path: str) -> None:
    async def run() -> None:
        async with client() as http:
            reply = await http.get(path)
            assert reply.status_code == 404
            assert reply.json()["error"]["code"] == "unknown_url"

    run_in_loop(run())


def test_the_server_shows_it_and_answers_head() -> None:
    async def run() -> None:
        async with toy_server() as server:
            for path in ("/", "/static/app.js"):
                head, get = await server.client.head(path), await server.client.get(path)
                assert (head.status_code, head.content) == (200, b"")
                assert head.headers["content-length"] == get.headers["content-length"]
            assert (await server.client.post("/", json={})).status_code == 405

    run_in_loop(run())


def test_links_are_relative_and_lead_to_files_of_the_page() -> None:
    """So that it works behind a path prefix, and without any other host."""
    text = {name: asset.content.decode() for name, asset in ASSETS.items()}
    links = set(re.findall(r'(?:src|href)="(?!#)([^"]+)"', PAGE.content.decode()))
    imports = {match for code in text.values() for match in re.findall(r'from "\./([^"]+)"', code)}
    assert {link.removeprefix("static/") for link in links} | imports == set(ASSETS)
    addresses = [url for code in text.values() for url in re.findall(r"https?://[^\"\s)]+", code)]
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_the_card_says_what_the_page_may_offer() -> None:
    async def run() -> None:
        async with toy_server(verifier=False, decoding={"block_size": 5}) as server:
            card = (await server.client.get("/v1/models/toy")).json()["decoding"]
            assert "prove" not in card["modes"]
            assert "speculative" not in card["modes"]
            assert (card["mode"], card["block_size"]) == ("auto", 5)
            assert "logistic" not in card["gates"]
            named = set(DecodingOptions.model_fields) - {"trace"}  # what a request may set, less what is off anyway
            assert named == card.keys() - {"modes", "gates"}
            for mode in card["modes"]:
                assert (await server.ask(max_tokens=2, decoding={"mode": mode})).status_code == 200
        async with toy_server() as server:
            assert "prove" in (await server.client.get("/v1/models")).json()["data"][0]["decoding"]["modes"]

    run_in_loop(run())
