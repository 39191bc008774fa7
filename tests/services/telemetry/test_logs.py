"""Logs: a line a record, with the ids that follow a request to every replica, and nothing of what it says."""

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from services.api.origin import HEADER
from services.channel.client import ChannelPool
from services.channel.messages import Release
from services.telemetry.logs import OURS, configure
from services.telemetry.origin import CURRENT_ID
from services.telemetry.settings import LoggingSettings
from tests.services.toy_engine import replicas, run_in_loop
from tests.services.toy_server import body, toy_server

CANARY = "xylophone"


@pytest.fixture
def logged() -> Iterator[Callable[..., io.StringIO]]:
    """Configures logging into a buffer; afterwards it is as it was."""
    loggers = [logging.getLogger(name) for name in OURS]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]

    def begin(**settings: Any) -> io.StringIO:
        stream = io.StringIO()
        configure(LoggingSettings(**settings), stream, role="router", replica="r1")
        return stream

    yield begin
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_a_json_record_is_one_line_with_its_fields(logged: Callable[..., io.StringIO]) -> None:
    stream = logged(format="json")
    logging.getLogger("services.x").warning("two\nlines of %s", "text", extra={"session": "id/ab-0/1", "seconds": 0.5})
    (line,) = stream.getvalue().splitlines()
    record = json.loads(line)
    assert record.pop("time").endswith("+00:00")
    assert record == {
        "level": "WARNING",
        "logger": "services.x",
        "message": "two\nlines of text",
        "role": "router",
        "replica": "r1",
        "session": "id/ab-0/1",
        "seconds": 0.5,
        "request_id": "id",
    }


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_exception_is_told_with_its_record(logged: Callable[..., io.StringIO], form: str) -> None:
    stream = logged(format=form)
    try:
        raise ZeroDivisionError("by nothing")
    except ZeroDivisionError:
        logging.getLogger("prove_core.x").exception("failed")
    assert "by nothing" in stream.getvalue()
    assert "replica" in stream.getvalue()
    assert (len(stream.getvalue().splitlines()) == 1) == (form == "json")


def test_the_level_is_kept(logged: Callable[..., io.StringIO]) -> None:
    stream = logged(level="WARNING")
    logging.getLogger("services.x").info("not this")
    logging.getLogger("services.x").warning("but this")
    assert "not this" not in stream.getvalue()
    assert "but this" in stream.getvalue()


def test_one_id_is_on_every_line_about_a_request(logged: Callable[..., io.StringIO]) -> None:
    stream = logged(format="json", level="DEBUG")

    async def run() -> None:
        async with toy_server() as server:
            fields = body(CANARY, max_tokens=9, decoding={"mode": "prove"})
            reply = await server.client.post("/v1/chat/completions", json=fields, headers={HEADER: "mine"})
            await server.client.post("/v1/chat/completions", json=body(CANARY, max_tokens=0), headers={HEADER: "bad"})
            assert await server.idle()
            text = reply.json()["choices"][0]["message"]["content"]
            assert text
            assert CANARY not in stream.getvalue()
            assert text not in stream.getvalue()

    run_in_loop(run())
    records = [json.loads(line) for line in stream.getvalue().splitlines()]
    mine = [record for record in records if record.get("request_id") == "mine"]
    messages = sorted(record["message"] for record in mine)
    assert messages == ["request ended", *["session opened"] * 2, *["session released"] * 2]
    (ended,) = (record for record in mine if record["message"] == "request ended")
    assert ended["outcome"] in ("stop", "length")
    assert ended["mode"] == "prove"
    assert 0 < ended["completion_tokens"] <= 9
    assert ended["total_ms"] >= ended["first_token_ms"] > 0
    (refused,) = (record for record in records if record.get("request_id") == "bad")
    assert (refused["message"], refused["outcome"]) == ("request refused", "rejected")


def test_what_a_shared_connection_tells_is_not_put_down_to_the_request_that_opened_it(
    logged: Callable[..., io.StringIO],
) -> None:
    async def run() -> None:
        async with replicas(1) as (replica,):
            pool = ChannelPool()
            CURRENT_ID.set("first")
            channel = await pool.get(replica.endpoint)
            (connection,) = replica.server.connections
            connection.send(0, Release("nothing that a router takes"))
            while not channel.closed:
                await asyncio.sleep(0.01)
            await pool.close()

    stream = logged(format="json")
    run_in_loop(run())
    (line,) = stream.getvalue().splitlines()
    assert "closing a channel" in line
    assert "request_id" not in json.loads(line)
