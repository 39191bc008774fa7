"""Requests at the gate: in turn, out at once when they leave, refused in time."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from services.admission.gate import Gate
from services.admission.settings import AdmissionSettings
from services.api.errors import ApiError


class _Hall:
    """Room for so many tokens."""

    def __init__(self, room: int) -> None:
        self.room = room


class _Seat:
    def __init__(self, hall: _Hall, tokens: int) -> None:
        self.hall, self.tokens = hall, tokens
        hall.room -= tokens

    def close(self) -> None:
        self.hall.room += self.tokens


def _gate(requests: int = 10, tokens: int = 1000, running: int = 100) -> Gate[_Seat]:
    return Gate(AdmissionSettings(max_queued_requests=requests, max_queued_tokens=tokens), running)


def _enter(gate: Gate[_Seat], hall: _Hall, tokens: int, priority: int = 0) -> "asyncio.Task[_Seat]":
    def claim(force: bool) -> _Seat | None:
        return _Seat(hall, tokens) if force or hall.room >= tokens else None

    return asyncio.ensure_future(gate.enter(tokens, priority, claim))


def _leave(gate: Gate[_Seat], seat: _Seat) -> None:
    seat.close()
    gate.leave(seat.tokens)


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 10))


def test_room_is_never_overcommitted_but_for_one_that_is_alone() -> None:
    async def run() -> None:
        hall, gate = _Hall(100), _gate()
        small = await _enter(gate, hall, 60)
        large = _enter(gate, hall, 400)
        await asyncio.sleep(0)
        assert (gate.running, gate.waiting, gate.queued_tokens) == (1, 1, 400)
        _leave(gate, small)
        _leave(gate, await large)
        assert (gate.running, gate.waiting, hall.room) == (0, 0, 100)

    _run(run())


def test_a_long_request_waits_for_its_room_and_is_not_passed_for_ever() -> None:
    async def run() -> None:
        hall, gate = _Hall(100), _gate()
        seats = [await _enter(gate, hall, 20) for _ in range(5)]
        long = _enter(gate, hall, 90)
        await asyncio.sleep(0)
        for _ in range(60):  # short ones come and go
            short = _enter(gate, hall, 20)
            await asyncio.sleep(0)
            _leave(gate, seats.pop(0))
            await asyncio.sleep(0)
            if long.done():
                break
            seats += [await short] if short.done() else []
        assert long.done()

    _run(run())


def test_whoever_leaves_while_waiting_is_out_at_once_and_makes_way() -> None:
    async def run() -> None:
        hall, gate = _Hall(100), _gate()
        seat = await _enter(gate, hall, 60)
        large, small = _enter(gate, hall, 80), _enter(gate, hall, 40)
        await asyncio.sleep(0)
        await small  # has the earlier turn
        assert gate.waiting == 1
        large.cancel()
        await asyncio.gather(large, return_exceptions=True)
        assert (gate.waiting, gate.queued_tokens) == (0, 0)
        _leave(gate, seat)
        _leave(gate, small.result())
        assert (gate.running, hall.room) == (0, 100)

    _run(run())


def test_whoever_is_let_in_at_the_moment_of_leaving_gives_the_room_back() -> None:
    async def run() -> None:
        hall, gate = _Hall(100), _gate()
        seat = await _enter(gate, hall, 100)
        late, next_one = _enter(gate, hall, 100), _enter(gate, hall, 100)
        await asyncio.sleep(0)
        _leave(gate, seat)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        _leave(gate, await next_one)
        assert (gate.running, gate.waiting, hall.room) == (0, 0, 100)

    _run(run())


def test_too_much_is_429_with_a_retry_that_follows_the_rate() -> None:
    async def run() -> None:
        hall, gate = _Hall(100), _gate(tokens=300)
        seat = await _enter(gate, hall, 100)
        waiting = [_enter(gate, hall, 100) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as refused:
            await _enter(gate, hall, 100)
        assert refused.value.status == 429
        assert refused.value.headers["Retry-After"] == "5"
        _leave(gate, seat)
        await waiting[0]
        await asyncio.sleep(0)
        _enter(gate, hall, 100)
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as refused:
            await _enter(gate, hall, 250)
        assert refused.value.headers["Retry-After"] == "3"  # 250 tokens at 100 in the last second
        for task in waiting:
            task.cancel()

    _run(run())


@pytest.mark.parametrize(("tokens", "waits"), [(300, True), (0, False)])
def test_whatever_is_larger_than_the_queue_waits_in_an_empty_one_if_there_is_one(tokens: int, waits: bool) -> None:
    async def run() -> None:
        hall, gate = _Hall(100), _gate(tokens=tokens)
        seat = await _enter(gate, hall, 100)
        large, next_one = _enter(gate, hall, 1000), _enter(gate, hall, 1)
        await asyncio.sleep(0)
        assert (gate.waiting, gate.queued_tokens) == ((1, 300) if waits else (0, 0))
        _leave(gate, seat)
        for refused in (next_one,) if waits else (large, next_one):
            with pytest.raises(ApiError, match="at its limit"):
                await refused
        if waits:
            _leave(gate, await large)
        assert (gate.running, hall.room) == (0, 100)

    _run(run())


def test_all_who_wait_can_be_refused() -> None:
    async def run() -> None:
        hall, gate = _Hall(100), _gate()
        await _enter(gate, hall, 100)
        waiting = [_enter(gate, hall, 100) for _ in range(3)]
        await asyncio.sleep(0)
        gate.refuse(ApiError(503, "nobody is there"))
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [error.status for error in results if isinstance(error, ApiError)] == [503] * 3
        assert (gate.waiting, gate.queued_tokens, gate.running) == (0, 0, 1)

    _run(run())


def test_no_more_run_than_allowed() -> None:
    async def run() -> None:
        hall, gate = _Hall(10**6), _gate(running=2)
        tasks = [_enter(gate, hall, 1) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert (gate.running, gate.waiting) == (2, 3)
        for task in tasks:
            _leave(gate, await task)
        assert gate.running == 0

    _run(run())
