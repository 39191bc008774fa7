"""Modes of two models while no verifier is to be had."""

import asyncio
import contextlib
import gc
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from prove_core.model.window import PassOutput, Window
from prove_core.types import DecodingParams, Finished, FinishReason, GenerateRequest, Limits, Mode, Role
from services.channel.client import ChannelPool
from services.channel.errors import ChannelClosed, VerifierUnavailable
from services.placement.load import NO_WISH, Wish
from services.sessions.degrade import MAX_RETURNS, Degraded, Fallback, Outlook
from services.sessions.driver import MAX_LOSSES_IN_A_ROW, complete
from services.sessions.replica_session import ReplicaSession
from tests.core.toy import ToyRunner, continuation
from tests.services.toy_engine import Replica, ToyLease, ToyLessor, replicas, run_in_loop
from tests.services.toy_server import body, toy_server

PROMPT = (5, 6, 7)
COUNT = 600


class MaybeLessor(ToyLessor):
    """Leases while there is a replica."""

    def __init__(self, replicas: Sequence[Replica], *, there: bool = True) -> None:
        super().__init__(replicas)
        self.there = there

    async def lease(self, session: str, wish: Wish = NO_WISH) -> ToyLease:
        if not self.there:
            raise ChannelClosed("nobody there")
        return await super().lease(session, wish)

    def go(self) -> None:
        """The replica and its leases are lost."""
        self.there = False
        for lease in self.leases:
            lease.end()


async def _run(
    mode: Mode,
    lessors: dict[Role, MaybeLessor],
    fallback: Fallback | None,
    disturb: Callable[[int, list[int]], Awaitable[object]] = lambda count, marks: asyncio.sleep(0),
    deadline_s: float = 0.1,
) -> tuple[list[int], list[int], Finished]:
    """Tokens, how many there were at each `Degraded`, and the end."""
    pool = ChannelPool()
    sessions = {
        role: ReplicaSession("s", lessor, pool, patience_s=deadline_s if role is Role.VERIFIER else 10.0)
        for role, lessor in lessors.items()
    }
    request = GenerateRequest("s", PROMPT, DecodingParams(mode, theta=0.1, block_size=6), Limits(COUNT))
    tokens: list[int] = []
    marks: list[int] = []
    try:
        async with contextlib.aclosing(complete(request, sessions, fallback=fallback)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return tokens, marks, event
                if isinstance(event, Degraded):
                    marks.append(len(tokens))
                else:
                    tokens += event.tokens
                await disturb(len(tokens), marks)
        raise AssertionError("no Finished")
    finally:
        for session in sessions.values():
            session.close()
        await asyncio.sleep(0.02)
        await pool.close()


@pytest.mark.parametrize("alone", [Mode.LOSSLESS, Mode.FUSED])
@pytest.mark.parametrize("mode", [Mode.PROVE, Mode.SPECULATIVE])
def test_a_lost_verifier_is_done_without_and_taken_back(mode: Mode, alone: Mode) -> None:
    async def run() -> None:
        async with replicas(2) as (proposer, verifier):
            lessors = {Role.PROPOSER: MaybeLessor([proposer]), Role.VERIFIER: MaybeLessor([verifier])}
            outlook = Outlook()

            async def disturb(count: int, marks: list[int]) -> None:
                lessor = lessors[Role.VERIFIER]
                if count > 40 and lessor.there and not marks:
                    lessor.go()
                if marks and count > marks[0] + 40 and not lessor.there:
                    lessor.there = True
                    while outlook.missing:
                        await asyncio.sleep(0.01)

            tokens, marks, end = await _run(mode, lessors, Fallback(alone, outlook), disturb, deadline_s=1.0)
            assert tokens == continuation(PROMPT, COUNT)
            assert end.reason is FinishReason.LENGTH
            assert len(marks) == 1
            assert not outlook.missing
            assert len(lessors[Role.VERIFIER].leases) == 2
            assert await proposer.idle()
            assert await verifier.idle()
            assert proposer.server.owners == verifier.server.owners == {}

    run_in_loop(run())


def test_once_known_to_be_missing_nobody_waits_for_it() -> None:
    async def run() -> None:
        async with replicas(1) as (proposer,):
            lessors = {Role.PROPOSER: MaybeLessor([proposer]), Role.VERIFIER: MaybeLessor([], there=False)}
            outlook = Outlook()
            outlook.set(missing=True)
            tokens, marks, _ = await _run(Mode.PROVE, lessors, Fallback(Mode.LOSSLESS, outlook), deadline_s=3600)
            assert (tokens, marks) == (continuation(PROMPT, COUNT), [0])
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run_in_loop(run())


def test_without_a_fallback_it_is_an_error() -> None:
    async def run() -> None:
        async with replicas(1) as (proposer,):
            lessors = {Role.PROPOSER: MaybeLessor([proposer]), Role.VERIFIER: MaybeLessor([], there=False)}
            with pytest.raises(VerifierUnavailable, match=r"within 0.1 s"):
                await _run(Mode.PROVE, lessors, None)
            assert await proposer.idle()

    run_in_loop(run())


def test_a_completion_that_loses_every_verifier_stops_asking_for_one() -> None:
    """Else a request that kills what reads it would go on killing."""

    class Deadly(MaybeLessor):
        async def lease(self, session: str, wish: Wish = NO_WISH) -> ToyLease:
            lease = await super().lease(session, wish)
            lease.end()
            return lease

    async def run() -> None:
        async with replicas(2) as (proposer, verifier):
            lessors: dict[Role, MaybeLessor] = {
                Role.PROPOSER: MaybeLessor([proposer]),
                Role.VERIFIER: Deadly([verifier]),
            }
            tokens, marks, _ = await _run(Mode.PROVE, lessors, Fallback(Mode.LOSSLESS, Outlook()))
            assert tokens == continuation(PROMPT, COUNT)
            assert len(marks) == MAX_RETURNS + 1
            assert await verifier.idle()

    run_in_loop(run())


@pytest.mark.parametrize("mode", [Mode.PROVE, Mode.SPECULATIVE])
def test_a_verifier_that_is_back_with_the_last_token_changes_nothing(mode: Mode) -> None:
    """Nothing is left to decode then: no call may ask for a block of no tokens."""

    async def run() -> None:
        async with replicas(2) as (proposer, verifier):
            lessors = {Role.PROPOSER: MaybeLessor([proposer]), Role.VERIFIER: MaybeLessor([verifier], there=False)}
            outlook = Outlook()
            outlook.set(missing=True)

            async def disturb(count: int, marks: list[int]) -> None:
                lessors[Role.VERIFIER].there = count == COUNT
                while count == COUNT and outlook.missing:
                    await asyncio.sleep(0.01)

            tokens, _, end = await _run(mode, lessors, Fallback(Mode.LOSSLESS, outlook), disturb)
            assert tokens == continuation(PROMPT, COUNT)
            assert end.reason is FinishReason.LENGTH
            assert len(lessors[Role.PROPOSER].leases) == 1
            assert await proposer.idle()
            assert await verifier.idle()

    run_in_loop(run())


@pytest.mark.parametrize("failures", range(4, 8))
def test_a_verifier_whose_passes_fail_for_a_while_is_done_without_for_that_long(
    failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs and grants leases all the time, so the session that was given up is open there."""
    left = iter(range(failures))

    class Failing(ToyRunner):
        def run(self, windows: Sequence[Window]) -> PassOutput:
            if next(left, None) is not None:
                raise ValueError("a pass that fails")
            return super().run(windows)

    async def run() -> None:
        async with replicas(1) as (proposer,), replicas(1, runner=Failing) as (verifier,):
            lessors = {Role.PROPOSER: MaybeLessor([proposer]), Role.VERIFIER: MaybeLessor([verifier])}
            outlook = Outlook()
            tokens, marks, _ = await _run(Mode.PROVE, lessors, Fallback(Mode.LOSSLESS, outlook))
            assert tokens == continuation(PROMPT, COUNT)
            assert bool(marks) == (failures >= MAX_LOSSES_IN_A_ROW)
            assert not outlook.missing
            assert await proposer.idle()
            assert await verifier.idle()

    run_in_loop(run())
    gc.collect()
    assert "never retrieved" not in caplog.text


def _without_verifier(server: Any) -> None:
    access = server.service._roles[Role.VERIFIER]
    access.lessor.lease = MaybeLessor([], there=False).lease


@pytest.mark.parametrize("stream", [True, False])
def test_the_reply_says_so(stream: bool) -> None:
    async def run() -> None:
        async with toy_server(healing={"verifier_deadline_s": 0.05}) as server:
            _without_verifier(server)
            fields = body(max_tokens=20, ignore_eos=True, decoding={"mode": "prove"})
            if stream:
                fields |= {"stream": True, "stream_options": {"include_usage": True}}
                reply = await server.client.post("/v1/chat/completions", json=fields)
                assert '"degraded":true,"degraded_from_token":1,' in reply.text
                assert reply.text.endswith("data: [DONE]\n\n")
            else:
                reply = await server.client.post("/v1/chat/completions", json=fields)
                report = reply.json()["metrics"]["speculative_decoding"]
                assert (report["degraded"], report["degraded_from_token"]) == (True, 1)
                assert report["passes"]["verifier"] == 0
                alone = await server.ask(max_tokens=20, ignore_eos=True, decoding={"mode": "ar"})
                assert alone.json()["choices"] == reply.json()["choices"]
                report = alone.json()["metrics"]["speculative_decoding"]
                assert (report["degraded"], report["degraded_from_token"]) == (False, None)
            assert await server.idle()

    run_in_loop(run())


@pytest.mark.parametrize("stream", [True, False])
def test_where_it_is_not_allowed_the_client_is_told_to_come_back(stream: bool) -> None:
    async def run() -> None:
        async with toy_server(healing={"verifier_deadline_s": 0.05, "degrade": "fail"}) as server:
            _without_verifier(server)
            reply = await server.ask(max_tokens=20, ignore_eos=True, decoding={"mode": "prove"}, stream=stream)
            if stream:  # its first token was on the way by then
                assert reply.status_code == 200
                assert '"error":{"message":"no replica could be had' in reply.text
                assert reply.text.endswith("data: [DONE]\n\n")
            else:
                assert reply.status_code == 503
                assert reply.headers["retry-after"]
            assert await server.idle()

    run_in_loop(run())
