"""However a request ends, nothing of it is left: pages, leases, tasks, entries of any table."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from prove_core.model.window import PassOutput, Window
from prove_core.types import Role
from tests.core.toy import ToyRunner
from tests.services.toy_engine import ToyLease, ToyLessor, run_in_loop
from tests.services.toy_server import ToyServer, body, toy_server

LONG = {"max_tokens": 1800, "ignore_eos": True}
COUNT = 10


class Unhurried(ToyRunner):
    """Passes take a moment: no request is done before it is cut."""

    def run(self, windows: Sequence[Window]) -> PassOutput:
        time.sleep(0.002)
        return super().run(windows)


async def _open(server: ToyServer, **fields: Any) -> asyncio.StreamWriter:
    """Send a request; the connection it was sent on."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    content = json.dumps(body(**fields)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    return writer


async def _leave(server: ToyServer, **fields: Any) -> None:
    writer = await _open(server, **fields)
    await asyncio.sleep(0.3)
    writer.close()


async def _run_out_of_time(server: ToyServer, **fields: Any) -> None:
    reply = await server.ask(timeout=0.3, **fields)
    if reply.status_code == 200:
        assert fields["stream"]
        assert '"code":"timeout"' in reply.text
        assert reply.text.endswith("data: [DONE]\n\n")
    else:
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "timeout")


async def _read_half(server: ToyServer, **fields: Any) -> None:
    """Through a client library that closes its stream."""
    async with server.client.stream("POST", "/v1/chat/completions", json=body(**(fields | {"stream": True}))) as reply:
        async for _ in reply.aiter_lines():
            return


def _lessors(server: ToyServer) -> list[Any]:
    return [server.service._roles[role].lessor for role in Role]


def _left(server: ToyServer) -> dict[str, int]:
    """What there is of requests, by kind."""
    channels = [task.result() for task in server.service._sessions._channels._channels.values()]
    return {
        "sessions at replicas": sum(len(r.server.owners) for r in (server.proposer, server.verifier)),
        "open leases": sum(not lease.closed for lessor in _lessors(server) for lease in lessor.leases),
        "calls under way": sum(channel.waiting for channel in channels),
        "bookings": sum(len(fleet._bookings) for fleet in server.service.reception._fleets.values()),
        "completions of engines": sum(len(r.engine._completions) for r in (server.proposer, server.verifier)),
        "running": server.service.reception.running,
        "waiting": server.service.reception.waiting,
        "queued tokens": server.service.reception.queued_tokens,
    }


async def _nothing_left(server: ToyServer, tasks: int) -> bool:
    """Soon. A busy machine may take its time, what leaks is left for ever."""
    deadline = time.monotonic() + 20
    while any(_left(server).values()) or len(asyncio.all_tasks()) > tasks:
        if time.monotonic() > deadline:
            raise AssertionError(f"{_left(server)}, {len(asyncio.all_tasks())} tasks, {tasks} before")
        await asyncio.sleep(0.02)
    return await server.proposer.idle() and await server.verifier.idle()


@pytest.mark.parametrize("end", [_leave, _run_out_of_time, _read_half])
@pytest.mark.parametrize("mode", ["lossless", "prove"])
@pytest.mark.parametrize("stream", [True, False])
def test_requests_cut_short_leave_nothing(end: Callable[..., Awaitable[None]], mode: str, stream: bool) -> None:
    async def run() -> None:
        async with toy_server(tokens=65536, runner=Unhurried) as server:
            assert (await server.ask(max_tokens=5)).status_code == 200
            tasks = len(asyncio.all_tasks())
            fields = {"stream": stream, "decoding": {"mode": mode, "theta": 0.1}, **LONG}
            before = passes = server.proposer.engine.stats().passes
            while passes == before:  # on a busy machine time may be up before anything has begun
                await asyncio.gather(*(end(server, **fields) for _ in range(COUNT)))
                passes = server.proposer.engine.stats().passes
            assert await _nothing_left(server, tasks + COUNT)  # connections that the client keeps open have one each
            assert passes - before < 1800
            assert (await server.ask(max_tokens=5)).status_code == 200

    run_in_loop(run())


@pytest.mark.parametrize("end", [_leave, _run_out_of_time])
@pytest.mark.parametrize("role", list(Role))
def test_whoever_waits_for_a_replica_leaves_nothing_either(end: Callable[..., Awaitable[None]], role: Role) -> None:
    async def run() -> None:
        async with toy_server(tokens=65536) as server:
            asked: list[str] = []

            async def hang(session: str, wish: object) -> ToyLease:
                asked.append(session)
                await asyncio.Event().wait()
                raise AssertionError

            lessor: ToyLessor = server.service._roles[role].lessor  # type: ignore[assignment]
            lease, lessor.lease = lessor.lease, hang  # type: ignore[method-assign, assignment]
            tasks = len(asyncio.all_tasks())
            fields = {"stream": True, "decoding": {"mode": "prove"}, **LONG}
            while not asked:  # as above
                await asyncio.gather(*(end(server, **fields) for _ in range(COUNT)))
            assert await _nothing_left(server, tasks + COUNT)
            lessor.lease = lease  # type: ignore[method-assign]
            assert (await server.ask(max_tokens=5, decoding={"mode": "prove"})).status_code == 200

    run_in_loop(run())


def test_the_servers_own_limit_holds_whatever_a_request_asks_for() -> None:
    async def run() -> None:
        async with toy_server(tokens=65536, runner=Unhurried, limits={"request_timeout_s": 0.2}) as server:
            reply = await server.ask(timeout=3600, **LONG)
            assert (reply.status_code, reply.json()["error"]["code"]) == (504, "timeout")
            assert "0.2 s" in reply.json()["error"]["message"]

    run_in_loop(run())


@pytest.mark.parametrize("timeout", [0, -1, "5", True, []])
def test_a_timeout_is_a_positive_number(timeout: object) -> None:
    async def run() -> None:
        async with toy_server() as server:
            reply = await server.ask(timeout=timeout)
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, "timeout")

    run_in_loop(run())


def test_a_stream_whose_replica_never_comes_back_ends_as_an_error_in_time() -> None:
    async def run() -> None:
        async with toy_server(tokens=65536, runner=Unhurried, healing={"patience_s": 0.5}) as server:
            stream = asyncio.create_task(server.ask(stream=True, decoding={"mode": "lossless"}, **LONG))
            while not server.proposer.server.owners:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            await server.proposer.server.stop()
            reply = await stream
            assert reply.status_code == 200
            assert '"error":{"message":"no replica could be had within 0.5 s' in reply.text
            assert '"finish_reason":"' not in reply.text
            assert reply.text.endswith("data: [DONE]\n\n")
            reply = await server.ask(max_tokens=5, decoding={"mode": "lossless"})
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "unavailable")
            assert reply.headers["retry-after"]

    run_in_loop(run())
