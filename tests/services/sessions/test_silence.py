"""Peers that are connected and say nothing, and engines that do not come back from a pass."""

import asyncio
import contextlib
import threading
from collections.abc import Sequence

import pytest

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.engine import Engine
from prove_core.errors import EngineStopped
from prove_core.model.window import PassOutput, Window
from prove_core.types import (
    CallRequest,
    Commit,
    DecodingParams,
    Finished,
    GenerateRequest,
    Limits,
    Mode,
    Propose,
    Role,
    Step,
)
from services.channel.client import Channel, ChannelPool, Endpoint
from services.channel.errors import ChannelClosed, Loss, ReplicaUnavailable
from services.channel.server import ChannelServer
from services.placement.fleet import Fleet
from services.placement.load import NO_WISH, Wish
from services.replicas.health import Health
from services.sessions.driver import complete
from services.sessions.replica_session import ReplicaSession
from tests.core.toy import ToyRunner, continuation
from tests.services.relay import relay
from tests.services.toy_engine import ToyLease, ToyLessor, replicas, run_in_loop

PROMPT = (5, 6, 7)
LIMIT_S = 0.4


@pytest.mark.parametrize(
    ("mode", "victim"),
    [(Mode.PROVE, Role.PROPOSER), (Mode.PROVE, Role.VERIFIER), (Mode.LOSSLESS, Role.PROPOSER)],
)
def test_a_replica_that_falls_silent_is_left_and_its_late_answers_do_no_harm(mode: Mode, victim: Role) -> None:
    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            p0, p1, v0, v1 = await stack.enter_async_context(replicas(4))
            hit = p0 if victim is Role.PROPOSER else v0
            between = await stack.enter_async_context(relay(hit.endpoint, 1500))
            lessors = {Role.PROPOSER: ToyLessor([p0, p1]), Role.VERIFIER: ToyLessor([v0, v1])}
            lessors[victim].through[0] = between.endpoint
            pool = ChannelPool(LIMIT_S)
            losses: list[Loss] = []
            sessions = {
                role: ReplicaSession("s", lessor, pool, recovered=lambda loss, _: losses.append(loss))
                for role, lessor in lessors.items()
            }
            tokens: list[int] = []
            request = GenerateRequest("s", PROMPT, DecodingParams(mode, theta=0.1, block_size=6), Limits(400))
            async with contextlib.aclosing(complete(request, sessions)) as events:
                async for event in events:
                    if isinstance(event, Finished):
                        break
                    tokens += event.tokens  # type: ignore[union-attr]
                    if losses:
                        between.thaw()
            assert losses == [Loss.SILENCE]
            assert tokens == continuation(PROMPT, 400)
            for session in sessions.values():
                session.close()
            for replica in (p0, p1, v0, v1):
                assert await replica.idle()
            await pool.close()

    run_in_loop(run())


def test_a_replica_that_grants_nothing_is_asked_again() -> None:
    class Hanging(ToyLessor):
        asked = 0

        async def lease(self, session: str, wish: Wish = NO_WISH) -> ToyLease:
            self.asked += 1
            if self.asked == 1:
                await asyncio.Event().wait()
            return await super().lease(session, wish)

    async def run() -> None:
        async with replicas(1) as (replica,):
            pool = ChannelPool()
            lessor = Hanging([replica])
            fleet = Fleet(lessor, None, page_size=16, most_sessions=9, grant_limit_s=0.1)
            (booking,) = fleet.book(100, PROMPT, 1, force=True) or []
            session = ReplicaSession("s", booking, pool)
            await session.open()
            assert lessor.asked == 2
            session.close()
            await pool.close()

    run_in_loop(run())


def test_an_idle_connection_lives_on() -> None:
    async def run() -> None:
        async with replicas(1) as (replica,):
            channel = await Channel.connect(replica.endpoint, 0.1)
            await asyncio.sleep(0.5)
            assert not channel.closed
            await channel.submit(CallRequest(Commit("s", 1, 0, PROMPT), Propose(2)))
            channel.close()

    run_in_loop(run())


def test_a_router_that_vanished_holds_no_pages() -> None:
    async def run() -> None:
        async with replicas(1) as (replica,):
            replica.server.router_silence_limit_s = LIMIT_S
            async with relay(replica.endpoint) as between:
                channel = await Channel.connect(between.endpoint, 60.0)
                await channel.submit(CallRequest(Commit("s", 1, 0, PROMPT), Propose(2)))
                between.freeze()
                assert await replica.idle()
                assert replica.server.owners == {}
                channel.close()

    run_in_loop(run())


class Stuck(ToyRunner):
    """Does not come back from a pass until told to."""

    def __init__(self, page_size: int) -> None:
        super().__init__(page_size)
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def run(self, windows: Sequence[Window]) -> PassOutput:
        self.entered.set()
        self.go_on.wait()
        return super().run(windows)


def test_a_hung_pass_fails_the_health_check_and_sends_the_sessions_away() -> None:
    async def run() -> None:
        runner = Stuck(16)
        engine = Engine(runner, EngineConfig(model=ModelConfig(checkpoint="toy"), cache=CacheConfig(tokens=512)))
        engine.start()
        server = ChannelServer(engine)
        endpoint = Endpoint("127.0.0.1", await server.start("127.0.0.1"), server.token)
        strict, patient = Health(engine, server, 0.0), Health(engine, server, 60.0)
        await strict.check()  # idle, however long
        channel = await Channel.connect(endpoint)
        answer = channel.submit(CallRequest(Commit("s", 1, 0, PROMPT), Propose(2)))
        await asyncio.to_thread(runner.entered.wait)
        await patient.check()
        assert not patient.failed.is_set()
        with pytest.raises(EngineStopped, match="lasted longer"):
            await strict.check()
        with pytest.raises(ChannelClosed):
            await answer
        with pytest.raises(ChannelClosed):
            await Channel.connect(endpoint)
        runner.go_on.set()
        with pytest.raises(EngineStopped):  # once failed, it is to be replaced
            await strict.check()
        engine.stop()
        with pytest.raises(EngineStopped, match="ended"):
            await patient.check()

    run_in_loop(run())


def test_the_age_of_a_pass_starts_anew_with_each_however_long_a_prompt_takes() -> None:
    class Recording(ToyRunner):
        def run(self, windows: Sequence[Window]) -> PassOutput:
            began.append(engine._beat._since)
            return super().run(windows)

    began: list[float | None] = []
    engine = Engine(Recording(16), EngineConfig(model=ModelConfig(checkpoint="toy"), cache=CacheConfig(tokens=16384)))
    engine.start()
    done = threading.Semaphore(0)
    for index in range(8):
        request = CallRequest(Commit(f"s{index}", 1, 0, (index, *range(40)) * 40), Propose(2))
        engine.call(request, lambda answer: done.release())
    for _ in range(8):
        done.acquire()
    engine.stop()
    assert len(began) > 8 * 41 * 40 / 256
    assert None not in began
    assert len(set(began)) == len(began)


def test_many_long_prompts_at_once_fail_no_health_check() -> None:
    """Each pass is short however much waits, and the event loop answers in between."""

    async def run() -> None:
        async with replicas(1, tokens=64 * 2048 + 1024) as (replica,):
            health = Health(replica.engine, replica.server, pass_limit_s=30.0)
            pool = ChannelPool()
            lessor = ToyLessor([replica])

            async def ask(index: int) -> int:
                session = ReplicaSession(f"s{index}", lessor, pool)
                prompt = tuple((index + place) % 40 for place in range(2000))
                request = GenerateRequest(f"s{index}", prompt, DecodingParams(Mode.LOSSLESS), Limits(4))
                tokens = [event async for event in complete(request, {Role.PROPOSER: session})]
                session.close()
                return len(tokens)

            asked = asyncio.gather(*(ask(index) for index in range(64)))
            checks = 0
            while not asked.done():
                await health.check()
                checks += 1
                await asyncio.sleep(0)  # at every turn of the loop: no clock decides how often
            assert all(await asked)
            assert checks > 10
            assert await replica.idle()
            await pool.close()

    run_in_loop(run())


class Failing(ToyRunner):
    """Every seventh pass raises; once `for_good`, all do."""

    for_good = False
    count = 0

    def run(self, windows: Sequence[Window]) -> PassOutput:
        self.count += 1
        if self.for_good or self.count % 7 == 0:
            raise RuntimeError("the card is gone")
        return super().run(windows)


@pytest.mark.parametrize("mode", [Mode.PROVE, Mode.LOSSLESS])
def test_failed_passes_are_healed_and_a_replica_that_only_fails_is_replaced(mode: Mode) -> None:
    async def run() -> None:
        async with replicas(2, runner=Failing) as (proposer, verifier):
            pool = ChannelPool()
            health = Health(proposer.engine, proposer.server, pass_limit_s=30.0)

            async def ask() -> list[int]:
                lessors = {Role.PROPOSER: ToyLessor([proposer]), Role.VERIFIER: ToyLessor([verifier])}
                sessions = {role: ReplicaSession("s", lessor, pool) for role, lessor in lessors.items()}
                request = GenerateRequest("s", PROMPT, DecodingParams(mode, theta=0.1, block_size=6), Limits(100))
                try:
                    events = [event async for event in complete(request, sessions)]
                finally:
                    for session in sessions.values():
                        session.close()
                return [token for event in events if isinstance(event, Step) for token in event.tokens]

            assert await ask() == continuation(PROMPT, 100)
            await health.check()
            proposer.engine._runner.for_good = True  # type: ignore[attr-defined]
            for _ in range(2):
                await health.check()
                with pytest.raises(ReplicaUnavailable, match=r"5 times in a row: .*the card is gone"):
                    await ask()
            with pytest.raises(EngineStopped, match="passes in a row have failed"):
                await health.check()
            await pool.close()

    run_in_loop(run())
