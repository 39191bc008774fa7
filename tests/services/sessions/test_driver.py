"""The two-model cycle and one-model completions over real channels, with replicas that go away."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import cast

import pytest

from prove_core.errors import PoolExhausted, SessionLost
from prove_core.model.window import Window, WindowOutput
from prove_core.types import (
    Cost,
    DecodingParams,
    Finished,
    FinishReason,
    GenerateRequest,
    Limits,
    Mode,
    Role,
    SamplingParams,
    Step,
)
from services.channel.client import ChannelPool
from services.channel.errors import Loss, ReplicaUnavailable
from services.placement.load import NO_WISH, Wish
from services.sessions.driver import MAX_LOSSES_IN_A_ROW, CycleTiming, complete, one_model
from services.sessions.replica_session import ReplicaSession
from tests.core.toy import ToyRunner, continuation
from tests.services.relay import relay
from tests.services.toy_engine import ToyLease, ToyLessor, replicas, run_in_loop

PROMPT = (5, 6, 7)
Disturb = Callable[[int], None]


OVERLAPPED = DecodingParams(Mode.PROVE, overlap_rows=18)  # two stops of three to six


class SteadyRunner(ToyRunner):
    """Proposes the same after the same context, as a model does."""

    def _predict(self, window: Window, context: list[int]) -> WindowOutput:
        self.random.seed(repr((context, window.placeholders)))
        return super()._predict(window, context)


def _request(mode: Mode | DecodingParams, count: int, **limits: object) -> GenerateRequest:
    params = mode if isinstance(mode, DecodingParams) else DecodingParams(mode)
    return GenerateRequest("s", PROMPT, replace(params, theta=0.1, block_size=6), Limits(count, **limits))  # type: ignore[arg-type]


async def _run(
    request: GenerateRequest,
    lessors: dict[Role, ToyLessor],
    disturb: Disturb = lambda count: None,
    patience_s: float = 5.0,
    silence_limit_s: float = 5.0,
) -> tuple[list[int], Finished]:
    pool = ChannelPool(silence_limit_s)
    sessions = {
        role: ReplicaSession(request.session, lessor, pool, patience_s=patience_s) for role, lessor in lessors.items()
    }
    tokens: list[int] = []
    try:
        async with contextlib.aclosing(complete(request, sessions)) as events:
            async for event in events:
                if isinstance(event, Finished):
                    return tokens, event
                tokens += event.tokens
                disturb(len(tokens))
        raise AssertionError("no Finished")
    finally:
        for session in sessions.values():
            session.close()
        await asyncio.sleep(0.02)
        await pool.close()


@pytest.mark.parametrize("mode", [Mode.PROVE, OVERLAPPED, Mode.SPECULATIVE, Mode.LOSSLESS, Mode.FUSED, Mode.AR])
@pytest.mark.parametrize("count", [1, 2, 50])
def test_every_mode_gives_the_greedy_text(mode: Mode | DecodingParams, count: int) -> None:
    """The toy verifier accepts exactly what is greedy, so that `prove` is exact too."""

    async def run() -> None:
        async with replicas(2) as (proposer, verifier):
            lessors = {Role.PROPOSER: ToyLessor([proposer]), Role.VERIFIER: ToyLessor([verifier])}
            tokens, end = await _run(_request(mode, count), lessors)
            assert tokens == continuation(PROMPT, count)
            assert end.reason is FinishReason.LENGTH
            assert await proposer.idle()
            assert await verifier.idle()
            assert all(lease.closed for lessor in lessors.values() for lease in lessor.leases)

    run_in_loop(run())


def test_one_token_needs_no_verifier() -> None:
    async def run() -> None:
        async with replicas(2) as (proposer, verifier):
            lessors = {Role.PROPOSER: ToyLessor([proposer]), Role.VERIFIER: ToyLessor([verifier])}
            await _run(_request(Mode.PROVE, 1), lessors)
            assert lessors[Role.VERIFIER].leases == []

    run_in_loop(run())


@pytest.mark.parametrize("mode", [Mode.PROVE, OVERLAPPED, Mode.SPECULATIVE, Mode.LOSSLESS, Mode.FUSED, Mode.AR])
@pytest.mark.parametrize("victim", list(Role))
@pytest.mark.parametrize("how", ["connection", "lease", "session", "engine"])
def test_a_loss_costs_no_token(mode: Mode | DecodingParams, victim: Role, how: str) -> None:
    async def run() -> None:
        async with replicas(4) as (p0, p1, v0, v1):
            lessors = {Role.PROPOSER: ToyLessor([p0, p1]), Role.VERIFIER: ToyLessor([v0, v1])}
            hit = p0 if victim is Role.PROPOSER else v0
            struck: list[int] = []

            def disturb(count: int) -> None:
                if count < 20 or struck:
                    return
                struck.append(count)
                if how == "connection":
                    for connection in list(hit.server.connections):
                        connection.close()
                elif how == "lease":
                    for lease in lessors[victim].leases:
                        lease.end()
                elif how == "session":
                    if mode in (Mode.PROVE, OVERLAPPED, Mode.SPECULATIVE):
                        hit.engine.release("s/1")
                else:
                    hit.engine.stop()

            tokens, end = await _run(_request(mode, 120), lessors, disturb)
            assert struck
            assert tokens == continuation(PROMPT, 120)
            assert end.reason is FinishReason.LENGTH

    run_in_loop(run())


@pytest.mark.parametrize("mode", [Mode.SPECULATIVE, Mode.LOSSLESS, Mode.FUSED, Mode.AR])
def test_a_loss_anywhere_changes_no_drawn_token(mode: Mode) -> None:
    """After each step in turn the connection is cut: cycles begin anew where none had begun, and draw the same."""

    async def run() -> None:
        sampling = SamplingParams(len(PROMPT), temperature=1.0, seed=9)
        request = replace(_request(mode, 30), sampling=sampling)
        async with replicas(2) as (proposer, verifier):
            lessors = {Role.PROPOSER: ToyLessor([proposer]), Role.VERIFIER: ToyLessor([verifier])}
            for place in range(1, 30, 3):
                struck: list[int] = []

                def disturb(count: int, place: int = place, struck: list[int] = struck) -> None:
                    if count >= place and not struck:
                        struck.append(count)
                        for connection in list(proposer.server.connections):
                            connection.close()

                tokens, _ = await _run(request, lessors, disturb)
                assert struck
                assert tokens == continuation(PROMPT, 30, seed=9)
        assert tokens != continuation(PROMPT, 30)

    run_in_loop(run())


@pytest.mark.parametrize("answer_bytes", range(150, 600, 37))
def test_a_loss_does_not_move_the_blocks_of_mars(answer_bytes: int) -> None:
    """What it commits depends on where its blocks begin. The loss comes anywhere, in the middle of a cycle too."""

    async def run() -> None:
        request = replace(_request(Mode.MARS, 60), params=DecodingParams(Mode.MARS, tau=0.3, block_size=6))
        async with replicas(1) as (replica,), relay(replica.endpoint, answer_bytes) as between:
            replica.engine._runner = SteadyRunner(16)
            whole = ToyLessor([replica])
            expected, _ = await _run(request, {Role.PROPOSER: whole})
            cut = ToyLessor([replica, replica])
            cut.through[0] = between.endpoint
            tokens, _ = await _run(request, {Role.PROPOSER: cut}, silence_limit_s=0.1)
            assert len(cut.leases) == 2
            assert tokens == expected
            assert tokens != continuation(PROMPT, 60)

    run_in_loop(run())


def test_no_replica_is_an_error_in_time() -> None:
    async def run() -> None:
        async with replicas(1) as (proposer,):
            lessors = {Role.PROPOSER: ToyLessor([proposer])}
        with pytest.raises(ReplicaUnavailable, match=r"within 0.3 s"):
            await _run(_request(Mode.AR, 10), lessors, patience_s=0.3)

    run_in_loop(run())


def test_what_never_fits_the_pool_is_an_error_at_once() -> None:
    async def run() -> None:
        async with replicas(1, tokens=64) as (proposer,):
            request = GenerateRequest("s", (1,) * 100, DecodingParams(), Limits(5))
            with pytest.raises(PoolExhausted):
                await asyncio.wait_for(_run(request, {Role.PROPOSER: ToyLessor([proposer])}), 10)

    run_in_loop(run())


@pytest.mark.parametrize("mode", [Mode.PROVE, Mode.AR])
def test_leaving_early_frees_both_roles(mode: Mode) -> None:
    async def run() -> None:
        async with replicas(2) as (proposer, verifier):
            lessors = {Role.PROPOSER: ToyLessor([proposer]), Role.VERIFIER: ToyLessor([verifier])}
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(_run(_request(mode, 4000), lessors), 0.1)
            assert await proposer.idle()
            assert await verifier.idle()

    run_in_loop(run())


@pytest.mark.parametrize("told", [1, 2])
@pytest.mark.parametrize("accepted", [0, 2])
def test_what_comes_again_after_a_loss_is_told_and_counted_once(told: int, accepted: int) -> None:
    """A verdict that passes no candidate has no tokens, and is news all the same."""
    first = [Step((1,), cost=Cost(cycles=1)), Step((2, 3)[:accepted], drafted=3, accepted=accepted)]
    second = [Step((4,), cost=Cost(cycles=1)), Step((), drafted=3)]

    class Lossy:
        def __init__(self) -> None:
            self.prompts: list[tuple[int, ...]] = []

        async def generate(self, request: GenerateRequest) -> AsyncGenerator[Step | Finished]:
            self.prompts.append(request.prompt)
            for step in first[:told] if len(self.prompts) == 1 else [*first, *second]:
                yield step
            if len(self.prompts) == 1:
                raise SessionLost("the replica is gone")
            yield Finished(FinishReason.STOP)

    async def run() -> None:
        lossy = Lossy()
        events = [event async for event in one_model(_request(Mode.MARS, 60), cast(ReplicaSession, lossy))]
        assert events == [*first, *second, Finished(FinishReason.STOP)]
        assert lossy.prompts == [PROMPT, PROMPT]

    run_in_loop(run())


@pytest.mark.parametrize("mode", [Mode.AR, Mode.PROVE])
def test_moves_are_no_losses_however_many_there_are(mode: Mode) -> None:
    """One that reads a long prompt may move again and again before its first token."""

    class MovedLease(ToyLease):
        async def ended(self) -> Loss:
            return Loss.MOVED

    class Restless(ToyLessor):
        async def lease(self, session: str, wish: Wish = NO_WISH) -> ToyLease:
            lease = await super().lease(session, wish)
            return MovedLease(lease.at) if len(self.leases) <= 2 * MAX_LOSSES_IN_A_ROW else lease

    async def run() -> None:
        async with replicas(2) as (proposer, verifier):
            lessors: dict[Role, ToyLessor] = {
                Role.PROPOSER: Restless([proposer]),
                Role.VERIFIER: Restless([verifier]),
            }
            tokens, _ = await _run(_request(mode, 40), lessors)
            assert tokens == continuation(PROMPT, 40)

    run_in_loop(run())


def test_concurrent_completions_equal_solo_ones() -> None:
    async def run() -> None:
        async with replicas(2, tokens=256) as (proposer, verifier):
            lessors = {Role.PROPOSER: ToyLessor([proposer]), Role.VERIFIER: ToyLessor([verifier])}
            requests = [
                GenerateRequest(f"s{i}", (i, i, i), DecodingParams(mode, theta=0.1, block_size=6), Limits(60))
                for i, mode in enumerate([Mode.PROVE, Mode.LOSSLESS, Mode.FUSED, Mode.SPECULATIVE] * 4)
            ]
            results = await asyncio.gather(*(_run(request, lessors) for request in requests))
            assert [tokens for tokens, _ in results] == [continuation((i, i, i), 60) for i in range(16)]
            assert await proposer.idle()
            assert await verifier.idle()

    run_in_loop(run())


def test_cycle_timings_cover_every_cycle() -> None:
    async def run() -> None:
        async with replicas(2) as (proposer, verifier):
            pool = ChannelPool()
            timings: list[CycleTiming] = []
            sessions = {
                Role.PROPOSER: ReplicaSession("s", ToyLessor([proposer]), pool),
                Role.VERIFIER: ReplicaSession("s", ToyLessor([verifier]), pool),
            }
            events = [event async for event in complete(_request(Mode.PROVE, 200), sessions, timings.append)]
            assert len(timings) == sum(event.cost.cycles for event in events)
            assert all(timing.overhead_seconds > 0 for timing in timings)
            for session in sessions.values():
                session.close()
            await pool.close()

    run_in_loop(run())


def test_a_caller_who_stops_early_leaves_nothing_waiting() -> None:
    """A stop string ends the completion while the next call is under way."""

    async def run() -> None:
        async with replicas(2) as (proposer, verifier):
            pool = ChannelPool()
            lessors = {Role.PROPOSER: ToyLessor([proposer]), Role.VERIFIER: ToyLessor([verifier])}
            for index in range(10):
                sessions = {role: ReplicaSession(f"s{index}", lessor, pool) for role, lessor in lessors.items()}
                async with contextlib.aclosing(complete(_request(Mode.PROVE, 100), sessions)) as events:
                    async for _ in events:
                        break
                for session in sessions.values():
                    session.close()
            assert await proposer.idle()
            assert await verifier.idle()
            channels = [await pool.get(replica.endpoint) for replica in (proposer, verifier)]
            assert [channel.waiting for channel in channels] == [0, 0]
            await pool.close()

    run_in_loop(run())


def test_a_lease_that_ends_between_calls_is_taken_again() -> None:
    async def run() -> None:
        async with replicas(2) as (proposer, verifier):
            lessors = {Role.PROPOSER: ToyLessor([proposer]), Role.VERIFIER: ToyLessor([verifier])}
            ended: list[Role] = []

            def disturb(count: int) -> None:
                if count > 20 and not ended:
                    for role in Role:
                        ended.append(role)
                        lessors[role].leases[0].end()
                        lessors[role].leases[0].at.server.release("s/1")

            tokens, _ = await _run(_request(Mode.PROVE, 80), lessors, disturb)
            assert tokens == continuation(PROMPT, 80)
            assert [len(lessors[role].leases) for role in Role] == [2, 2]

    run_in_loop(run())
