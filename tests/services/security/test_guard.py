"""The API behind keys, over real HTTP."""

from pathlib import Path

import httpx
import pytest

from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import body, toy_server

KEY = "key-0123456789abcdef"
CHAT = "/v1/chat/completions"


def _refused(reply: httpx.Response) -> bool:
    if reply.status_code != 401:
        return False
    error = reply.json()["error"]
    assert error["code"] == "invalid_api_key"
    assert error["type"] == "invalid_request_error"
    assert reply.headers["www-authenticate"] == "Bearer"
    assert KEY not in reply.text
    return True


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "keys"
    path.write_text(f"{KEY}\n")
    return str(path)


def test_the_api_opens_with_a_key_only(file: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with toy_server(security={"api_keys_file": file}) as server:
            client = server.client
            good = {"Authorization": f"Bearer {KEY}"}
            reply = await client.post(CHAT, json=body(max_tokens=3), headers=good)
            assert reply.status_code == 200
            assert (await client.get("/v1/models", headers={"Authorization": f"bearer  {KEY}"})).status_code == 200
            for headers in ({}, {"Authorization": KEY}, {"Authorization": f"Basic {KEY}"}, {"X-Api-Key": KEY}):
                assert _refused(await client.post(CHAT, json=body(max_tokens=3), headers=headers))
            for wrong in ("Bearer", "Bearer x", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", "Bearer \xff\xfe"):
                assert _refused(await client.get("/v1/models", headers={"Authorization": wrong.encode("latin-1")}))
            twice = [("Authorization", f"Bearer {KEY}"), ("Authorization", "Bearer x")]
            assert _refused(await client.get("/v1/models", headers=twice))
            assert _refused(await client.get("/nothing"))
            assert _refused(await client.get("/v1/models", params={"api_key": KEY}))
            assert server.service.running == 0

    run_in_loop(run())
    assert KEY not in caplog.text


def test_health_is_open(file: str) -> None:
    async def run() -> None:
        async with toy_server(security={"api_keys_file": file}) as server:
            assert (await server.client.get("/health")).status_code == 200
            assert _refused(await server.client.get("/healthy"))
            assert _refused(await server.client.get("/health/../v1/models"))

    run_in_loop(run())


def test_a_body_is_not_read_for_a_stranger(file: str) -> None:
    async def run() -> None:
        async with toy_server(security={"api_keys_file": file}, limits={"max_body_bytes": 2000}) as server:
            assert _refused(await server.client.post(CHAT, content=b"x" * 5000))

    run_in_loop(run())


def test_without_keys_any_authorization_will_do() -> None:
    async def run() -> None:
        async with toy_server() as server:
            headers = {"Authorization": "Bearer none"}  # clients of open servers send something
            assert (await server.client.get("/v1/models", headers=headers)).status_code == 200

    run_in_loop(run())
