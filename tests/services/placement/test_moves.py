"""Sessions that move in the middle of a completion: nothing is lost, nothing is said twice."""

import threading
from collections.abc import Sequence

import pytest

from prove_core.model.window import PassOutput, Window
from prove_core.types import DecodingParams, Finished, GenerateRequest, Limits, Mode, Role, Step
from services.channel.client import ChannelPool
from services.channel.errors import Loss
from services.placement.booking import Booking
from services.placement.fleet import Fleet
from services.sessions.driver import complete
from services.sessions.replica_session import ReplicaSession
from tests.core.toy import ToyRunner, continuation
from tests.services.toy_engine import ToyLessor, replicas, run_in_loop

PROMPT = (3, 1, 4, 1, 5)
COUNT = 300


@pytest.mark.parametrize("mode", [Mode.AR, Mode.LOSSLESS, Mode.SPECULATIVE])
def test_moves_change_no_token(mode: Mode) -> None:
    read = threading.Semaphore(4)

    class InStep(ToyRunner):
        """Gets a few passes ahead of whoever reads: a move must find the completion under way."""

        def run(self, windows: Sequence[Window]) -> PassOutput:
            read.acquire(timeout=0.05)  # those that a move lost are never read
            return super().run(windows)

    async def run() -> None:
        async with replicas(2, runner=InStep) as (p0, p1), replicas(2) as (v0, v1):
            pool = ChannelPool()
            bookings: dict[Role, Booking] = {}
            sessions: dict[Role, ReplicaSession] = {}
            losses: list[Loss] = []
            for role, pair in ((Role.PROPOSER, (p0, p1)), (Role.VERIFIER, (v0, v1))):
                lessor = ToyLessor(pair)
                fleet = Fleet(lessor, lessor.loads, page_size=16, most_sessions=9)
                await fleet.refresh()
                (bookings[role],) = fleet.book(400, PROMPT, 1, force=False) or []
                sessions[role] = ReplicaSession(
                    "s", bookings[role], pool, recovered=lambda loss, seconds: losses.append(loss)
                )
            used = [Role.PROPOSER, Role.VERIFIER] if mode is Mode.SPECULATIVE else [Role.PROPOSER]
            tokens: list[int] = []
            at = {role: set[str]() for role in used}
            request = GenerateRequest("s", PROMPT, DecodingParams(mode, block_size=8), Limits(COUNT))
            moves = 0
            async for event in complete(request, sessions):
                if isinstance(event, Finished):
                    break
                assert isinstance(event, Step)
                tokens += event.tokens
                read.release()
                for role in used:
                    at[role].add(bookings[role].replica or "")
                if len(tokens) // 60 > moves:
                    moves += 1
                    bookings[used[moves % len(used)]].move()
            assert tokens == continuation(PROMPT, COUNT)
            assert len(losses) >= 3
            assert set(losses) == {Loss.MOVED}
            assert all(len(names - {""}) == 2 for names in at.values()), "to the other one and back"
            for session in sessions.values():
                session.close()
            assert all([await replica.idle() for replica in (p0, p1, v0, v1)])
            await pool.close()

    run_in_loop(run())
