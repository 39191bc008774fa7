"""`x-request-id` on every reply, and what is taken for one."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Scope

from services.api import errors
from services.api.origin import HEADER, RequestIds
from services.telemetry.origin import REQUEST_ID, Origin, request_of
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import body, toy_server

ID = "Root=1-67891233-abc:def@x.y+z"
PATH = "/v1/chat/completions"


def _unheard(scope: Scope, error: errors.ApiError) -> None:
    """Nobody counts what is refused."""


def test_every_reply_carries_the_clients_id() -> None:
    async def run() -> None:
        async with toy_server() as server:
            ask = server.client
            head = {HEADER: ID}
            replies = [
                await ask.post(PATH, json=body(max_tokens=4), headers=head),
                await ask.post(PATH, json=body(max_tokens=4, stream=True), headers=head),
                await ask.post(PATH, json=body(max_tokens=0), headers=head),
                await ask.post(PATH, content=b"{", headers=head),
                await ask.get(PATH, headers=head),
                await ask.get("/nowhere", headers=head),
                await ask.get("/health", headers=head),
                await ask.get("/v1/models", headers=head),
            ]
            assert [reply.status_code for reply in replies] == [200, 200, 400, 400, 405, 404, 200, 200]
            assert {reply.headers[HEADER] for reply in replies} == {ID}

    run_in_loop(run())


def test_without_one_each_request_gets_its_own() -> None:
    async def run() -> None:
        async with toy_server() as server:
            replies = [await server.client.get("/health") for _ in range(3)]
            ids = {reply.headers[HEADER] for reply in replies}
            assert len(ids) == 3
            assert all(REQUEST_ID.fullmatch(id) for id in ids)

    run_in_loop(run())


@pytest.mark.parametrize("id", ["", "a b", "a/b", "ä", "x" * 129, "a\tb", "{}"])
def test_a_bad_id_is_refused_and_not_echoed(id: str) -> None:
    async def run() -> None:
        async with toy_server() as server:
            reply = await server.client.get("/health", headers={HEADER: id.encode()})
            assert reply.status_code == 400
            assert reply.json()["error"]["param"] == HEADER
            assert REQUEST_ID.fullmatch(reply.headers[HEADER])
            assert reply.headers[HEADER] != id

    run_in_loop(run())


def test_one_id_for_two_requests_at_once_serves_both() -> None:
    async def run() -> None:
        async with toy_server() as server:
            fields = body(max_tokens=30, n=2, decoding={"mode": "prove"})
            asks = [server.client.post(PATH, json=fields, headers={HEADER: ID}) for _ in range(4)]
            texts = [reply.json()["choices"][0]["message"]["content"] for reply in await asyncio.gather(*asks)]
            assert len(set(texts)) == 1
            assert texts[0]

    run_in_loop(run())


def test_a_bug_is_answered_with_an_id_too() -> None:
    app = FastAPI()
    errors.install(app)
    app.add_middleware(RequestIds, refused=_unheard)

    @app.get("/bug")
    async def bug() -> None:
        raise ZeroDivisionError

    async def run() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://toy") as client:
            reply = await client.get("/bug", headers={HEADER: ID})
        assert reply.status_code == 500
        assert reply.headers[HEADER] == ID
        assert "ZeroDivision" not in reply.text

    asyncio.run(run())


def test_where_serve_returns_the_id_it_is_not_added_again() -> None:
    app = FastAPI()
    app.add_middleware(RequestIds, refused=_unheard, returned=False)

    async def run() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://toy") as client:
            assert HEADER not in (await client.get("/", headers={HEADER: ID})).headers

    asyncio.run(run())


@given(st.from_regex(REQUEST_ID, fullmatch=True), st.integers(0, 127))
def test_a_session_tells_its_request(id: str, choice: int) -> None:
    session = Origin.new(id).session("chatcmpl-0123456789abcdef", choice)
    assert request_of(session) == id
    assert request_of(f"{session}/3") == id  # as replicas know it
