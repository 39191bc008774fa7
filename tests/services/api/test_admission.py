"""Bursts at the REST API: what there is no room for waits its turn or is refused; nobody loses KV to a newcomer."""

import asyncio
from typing import Any

import httpx
import pytest

from prove_core.types import Role
from services.admission.reception import Demand
from tests.services.api.test_http import _error, _post, _text
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import ToyServer, toy_server

OCCUPANT = Demand((1,), 1, 1, (Role.PROPOSER,), 0)
SHORT: dict[str, Any] = {"max_tokens": 200, "ignore_eos": True}


async def _until_waiting(server: ToyServer, count: int) -> None:
    async with asyncio.timeout(5):
        while server.service.reception.waiting != count:
            await asyncio.sleep(0.005)


def _statuses(replies: list[httpx.Response]) -> list[int]:
    return sorted(reply.status_code for reply in replies)


@pytest.mark.parametrize("mode", ["ar", "prove"])
def test_a_burst_waits_for_kv_instead_of_preempting(mode: str) -> None:
    async def run() -> None:
        async with toy_server(tokens=1024) as server:
            fields: dict[str, Any] = {**SHORT, "decoding": {"mode": mode, "theta": 0.1}}
            alone = _text(await server.ask(**fields))
            replies = await asyncio.gather(*(server.ask(**fields) for _ in range(24)))
            assert {_text(reply) for reply in replies} == {alone}
            assert server.proposer.engine.stats().preemptions == 0
            assert server.verifier.engine.stats().preemptions == 0
            assert await server.idle()

    run_in_loop(run())


async def _eight_while_occupied(server: ToyServer, waiting: int) -> list[httpx.Response]:
    """Replies to eight requests of which so many find a place in the queue before there is room."""
    async with server.service.reception.admitted(OCCUPANT):
        asks = [asyncio.create_task(server.ask(**SHORT)) for _ in range(8)]
        async with asyncio.timeout(10):
            while sum(ask.done() for ask in asks) < 8 - waiting:
                await asyncio.sleep(0.005)
        assert server.service.reception.waiting == waiting
    return await asyncio.gather(*asks)


def test_beyond_the_queue_requests_are_429_with_retry_after() -> None:
    async def run() -> None:
        async with toy_server(router={"max_ongoing_requests": 1}, admission={"max_queued_requests": 3}) as server:
            replies = await _eight_while_occupied(server, waiting=3)
            assert _statuses(replies) == [200] * 3 + [429] * 5
            for reply in replies:
                if reply.status_code == 429:
                    assert _error(reply, 429)["type"] == "rate_limit_error"
                    assert 1 <= int(reply.headers["retry-after"]) <= 120
            assert await server.idle()

    run_in_loop(run())


def test_the_queue_is_bounded_by_tokens_too() -> None:
    async def run() -> None:
        async with toy_server(router={"max_ongoing_requests": 1}, admission={"max_queued_tokens": 600}) as server:
            replies = await _eight_while_occupied(server, waiting=2)
            assert _statuses(replies) == [200] * 2 + [429] * 6

    run_in_loop(run())


def test_priority_decides_who_is_next() -> None:
    async def run() -> None:
        async with toy_server(router={"max_ongoing_requests": 1}) as server:
            order: list[int] = []

            async def ask(priority: int) -> None:
                _text(await server.ask(priority=priority, max_tokens=5))
                order.append(priority)

            async with server.service.reception.admitted(OCCUPANT):
                waiting = []
                for count, priority in enumerate((3, 0, -5, 1), start=1):
                    waiting.append(asyncio.create_task(ask(priority)))
                    await _until_waiting(server, count)
            await asyncio.gather(*waiting)
            assert order == [-5, 0, 1, 3]

    run_in_loop(run())


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_what_could_never_wait_is_400_with_the_field_and_the_bound(name: str) -> None:
    """Busy or idle: no retry would help. The bound itself is served."""

    async def run() -> None:
        async with toy_server(router={"max_ongoing_requests": 1}, admission={"max_queued_tokens": 300}) as server:
            prompt = (await server.ask(max_tokens=1)).json()["usage"]["prompt_tokens"]
            beyond = [(name, {name: 301 - prompt}), ("messages", {name: 1}), ("messages", {})]
            asks = [
                server.ask(**({} if field == name else {"text": "so long " * 200}), **more) for field, more in beyond
            ]
            for (field, _), reply in zip(beyond, await asyncio.gather(*asks), strict=True):
                error = _error(reply, 400)
                assert (error["param"], error["code"]) == (field, "invalid_value")
                assert "300" in error["message"]
                assert "admission.max_queued_tokens" in error["message"]
            async with server.service.reception.admitted(OCCUPANT):
                assert (await server.ask(**{name: 301 - prompt})).status_code == 400
                waiting = asyncio.create_task(server.ask(**{name: 300 - prompt}))
                await _until_waiting(server, 1)
            _text(await waiting)
            _text(await server.ask(n=9, **{name: 300 - prompt}))

    run_in_loop(run())


@pytest.mark.parametrize("name", ["max_queued_tokens", "max_queued_requests"])
def test_without_a_queue_no_size_is_too_large(name: str) -> None:
    async def run() -> None:
        async with toy_server(admission={name: 0}) as server:
            _text(await server.ask(max_tokens=400))

    run_in_loop(run())


@pytest.mark.parametrize("priority", [2**31, 1.5, "high", True])
def test_a_priority_is_an_integer_of_32_bits(priority: object) -> None:
    async def run() -> None:
        async with toy_server() as server:
            assert _error(await server.ask(priority=priority), 400)["param"] == "priority"

    run_in_loop(run())


def test_whoever_leaves_or_runs_out_of_time_in_the_queue_is_out_of_it() -> None:
    async def run() -> None:
        async with toy_server(router={"max_ongoing_requests": 1}, limits={"request_timeout_s": 0.5}) as server:
            async with server.service.reception.admitted(OCCUPANT):
                waiting = asyncio.create_task(server.ask(max_tokens=5))
                await _until_waiting(server, 1)
                connection = await _post(server, max_tokens=5)
                await _until_waiting(server, 2)
                connection.close()
                await _until_waiting(server, 1)
                assert _error(await waiting, 504)["code"] == "timeout"
                assert (server.service.reception.waiting, server.service.reception.queued_tokens) == (0, 0)
            _text(await server.ask(max_tokens=5))
            assert await server.idle()

    run_in_loop(run())


def test_choices_count_one_by_one() -> None:
    async def run() -> None:
        async with toy_server(tokens=1024) as server:
            replies = await asyncio.gather(*(server.ask(n=3, **SHORT) for _ in range(4)))
            assert _statuses(replies) == [200] * 4
            assert server.proposer.engine.stats().preemptions == 0
            assert (await server.ask(n=12, **SHORT)).status_code == 200, "more than all the room: it runs alone"
            assert await server.idle()

    run_in_loop(run())
