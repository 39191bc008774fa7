"""What clients say, what they are told, and their keys stand in no log, of good requests and of failing ones."""

import asyncio
import contextlib
import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from services.telemetry.logs import OURS, LoggingSettings, configure
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import ToyServer, toy_server

CANARY = "Canary-7f3a"
KEY = "key-Canary-7f3a-0123456789"
LEAST = 12  # characters of a reply that are no accident
MODES = ("ar", "auto", "prove")
WRONG: list[dict[str, Any]] = [
    {"n": 0, "user": CANARY},
    {"stop": [CANARY, ""]},
    {CANARY: 1},
    {"logit_bias": {CANARY: 1}},
    {"model": CANARY},
    {"tools": [{"function": {"name": CANARY}}]},
    {"max_tokens": CANARY},
    {"decoding": {"mode": CANARY}},
    {"messages": [{"role": "tool", "content": CANARY}]},
    {"max_tokens": 10**6},
]


@pytest.fixture(params=["text", "json"])
def logs(request: pytest.FixtureRequest) -> Iterator[io.StringIO]:
    """What our loggers write, at every level: more than a server does by default."""
    form: Literal["text", "json"] = request.param
    before = {name: (log.handlers, log.propagate, log.level) for name in OURS if (log := logging.getLogger(name))}
    stream = io.StringIO()
    configure(LoggingSettings(format=form, level="DEBUG"), stream)
    yield stream
    for name, (handlers, propagate, level) in before.items():
        log = logging.getLogger(name)
        log.handlers, log.propagate = handlers, propagate
        log.setLevel(level)


async def _good(server: ToyServer) -> list[str]:
    """Replies of good requests."""
    said = []
    for mode in MODES:
        fields = {"max_tokens": 40, "user": CANARY, "stop": [CANARY], "ignore_eos": True, "decoding": {"mode": mode}}
        said.append((await server.ask(CANARY, **fields)).json()["choices"][0]["message"]["content"])
        assert (await server.ask(CANARY, stream=True, logit_bias={"5": 1}, **fields)).status_code == 200
    return said


async def _failing(server: ToyServer) -> None:
    for fields in WRONG:
        assert 400 <= (await server.ask(**{"text": CANARY, **fields})).status_code < 500
    post = server.client.post
    for text in (
        f'{{"{CANARY}',
        f'{{"model": "toy", "messages": [{{"role": "user", "content": "{CANARY} \\ud800"}}]}}',
    ):
        assert (await post("/v1/chat/completions", content=text.encode())).status_code == 400
    assert (await post("/v1/chat/completions", json={}, headers={"Authorization": f"Bearer x{KEY}"})).status_code == 401
    assert (await server.client.get(f"/v1/models/{CANARY}")).status_code == 404
    with contextlib.suppress(httpx.ReadTimeout):
        await server.client.post(
            "/v1/chat/completions",
            json={"model": "toy", "messages": [{"role": "user", "content": CANARY}], "ignore_eos": True},
            timeout=0.05,
        )


async def _broken(server: ToyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in the server, and a replica whose engine ends under a request."""
    monkeypatch.setattr(server.service._renderer, "render", lambda chat: 1 / 0)
    assert (await server.ask(CANARY)).status_code == 500
    monkeypatch.undo()
    request = asyncio.create_task(server.ask(CANARY, ignore_eos=True))
    await asyncio.sleep(0.02)
    server.proposer.engine.stop()
    assert (await request).status_code in (200, 503)


def test_no_log_tells_what_was_said(
    logs: io.StringIO,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    said: list[str] = []

    async def run() -> None:
        settings = {"security": {"api_keys_file": str(keys)}, "healing": {"patience_s": 0.5}}
        async with toy_server(**settings) as server:
            server.client.headers["Authorization"] = f"Bearer {KEY}"
            said.extend(await _good(server))
            await _failing(server)
            await _broken(server, monkeypatch)

    caplog.set_level(logging.WARNING, "httpx")  # the client's own
    with caplog.at_level(logging.INFO):
        run_in_loop(run())
    out, err = capfd.readouterr()
    written = logs.getvalue() + caplog.text + out + err
    assert "request failed" in written  # else nothing was looked at
    assert CANARY not in written
    for reply in said:
        assert not any(reply[i : i + LEAST] in written for i in range(len(reply) - LEAST))
