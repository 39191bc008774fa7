"""A body that never comes whole, and lengths that are no numbers, straight at the ASGI application."""

import logging
from typing import Any

import pytest

from services.api.http import create_app
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import toy_server

HALF: list[dict[str, Any]] = [
    {"type": "http.request", "body": b'{"model"', "more_body": True},
    {"type": "http.disconnect"},
]


async def _status(app: Any, messages: list[dict[str, Any]], *headers: tuple[bytes, bytes]) -> int:
    sent: list[dict[str, Any]] = []
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "raw_path": b"", "query_string": b""}
    queue = list(messages)

    async def receive() -> dict[str, Any]:
        return queue.pop(0) if queue else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app({**scope, "headers": list(headers), "scheme": "http", "server": ("x", 80)}, receive, send)
    status: int = sent[0]["status"]
    return status


def test_a_client_that_leaves_before_its_body_ends_is_nobodys_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with toy_server() as server:
            assert await _status(create_app(server.service), HALF) == 499
            assert server.service.running == 0

    with caplog.at_level(logging.INFO):
        run_in_loop(run())
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("length", ["²", "9" * 5000, "-1", "x", "", "1e9", "٣"])
def test_a_length_that_is_no_number_is_no_crash(length: str) -> None:
    async def run() -> None:
        async with toy_server() as server:
            whole = [{"type": "http.request", "body": b"{", "more_body": False}]
            header = (b"content-length", length.encode("utf-8")[:5000])
            assert await _status(create_app(server.service), whole, header) in (400, 413)

    run_in_loop(run())
