"""Completions over replicas: the two-model cycle, run here, and the one-model kind, run inside the proposer."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass

from prove_core.decoding.cycle import TWO_MODEL_MODES, Collect
from prove_core.decoding.driver import CompletionDriver, Pending
from prove_core.errors import SessionLost
from prove_core.types import (
    CallResult,
    Finished,
    FinishReason,
    GenerateRequest,
    Mode,
    Role,
    Step,
)
from services.channel.errors import ReplicaUnavailable, VerifierUnavailable
from services.sessions.ahead import AheadCall
from services.sessions.degrade import DegradingRun, Event, Fallback, remaining
from services.sessions.replica_session import ReplicaSession, SessionMoved

MAX_LOSSES_IN_A_ROW = 5


@dataclass(frozen=True, slots=True)
class CycleTiming:
    """One two-model cycle as the Router saw it: all of it, and the part spent in forward passes. Seconds."""

    seconds: float
    pass_seconds: float

    @property
    def overhead_seconds(self) -> float:
        """Everything but passes: transport, scheduling, trimming, gate, and whoever reads the steps."""
        return self.seconds - self.pass_seconds


Observer = Callable[[CycleTiming], None]


def complete(
    request: GenerateRequest,
    sessions: Mapping[Role, ReplicaSession],
    observe: Observer | None = None,
    fallback: Fallback | None = None,
) -> AsyncGenerator[Event]:
    """Run one completion: steps as they are committed, then `Finished`; `Degraded` where the fallback begins or ends.

    Replicas that die on the way cost time, never a token. Raises `ReplicaUnavailable` when no other is to be had, and
    what the engines answer (`RequestError` and others). Opens the sessions that it needs; the caller closes.
    """
    proposer = sessions[Role.PROPOSER]
    if request.params.mode not in TWO_MODEL_MODES:
        return one_model(request, proposer)
    if fallback is None:
        return TwoModelRun(request, sessions, observe).events()
    return DegradingRun(
        request,
        lambda rest: TwoModelRun(rest, sessions, observe).events(),
        lambda rest: one_model(rest, proposer),
        (proposer, sessions[Role.VERIFIER]),
        fallback,
    ).events()


class TwoModelRun:
    """The cycle of modes `prove` and `speculative`: the Router owns the tokens, replicas hold a cache of them.

    What it has yielded when it raises is all that it has committed.
    """

    def __init__(
        self, request: GenerateRequest, sessions: Mapping[Role, ReplicaSession], observe: Observer | None
    ) -> None:
        self._driver = CompletionDriver(
            request.session, request.prompt, request.params, request.limits, request.sampling
        )
        self._sessions = sessions
        self._clock = _CycleClock(observe) if observe else None
        self._ahead = AheadCall()
        self._sent = 0.0

    async def events(self) -> AsyncGenerator[Step | Finished]:
        """Each call is sent before the steps that led to it are yielded: a slow reader delays no pass."""
        turn = self._driver.advance()
        try:
            while not isinstance(turn.following, Finished):
                if turn.ahead is not None:
                    self._ahead.begin(self._sessions[turn.ahead.role].start(turn.ahead.request))
                if isinstance(turn.following, Collect):
                    for step in turn.steps:
                        yield step
                    turn = self._driver.advance(await self._ahead.collect())
                    continue
                future = self._send(turn.following)
                try:
                    for step in turn.steps:
                        yield step
                    result = await self._answer(turn.following, future)
                finally:
                    if future is not None:
                        future.cancel()
                call_seconds = time.perf_counter() - self._sent
                self._count(turn.following, result)
                turn = self._driver.advance(result, call_seconds)
        finally:
            self._ahead.cancel()
        for step in turn.steps:
            yield step
        if self._clock:
            self._clock.end()
        yield turn.following

    def _count(self, pending: Pending, result: CallResult) -> None:
        if self._clock:
            self._clock.stop(pending, result)
        late = self._ahead.late() if pending.role is Role.PROPOSER else None
        if late is not None:
            self._driver.spent(Role.PROPOSER, late)

    def _send(self, pending: Pending) -> asyncio.Future[CallResult] | None:
        """None for a session that is not open: `_answer` will wait for it, after the steps have been yielded."""
        if self._clock:
            self._clock.start(pending)
        return self._start(pending)

    def _start(self, pending: Pending) -> asyncio.Future[CallResult] | None:
        self._sent = time.perf_counter()
        return self._sessions[pending.role].start(pending.request)

    async def _answer(self, pending: Pending, future: asyncio.Future[CallResult] | None) -> CallResult:
        session = self._sessions[pending.role]
        losses = 0
        try:
            if not pending.request.commit.keep and future is None:
                await session.open()
                future = self._start(pending)
            while True:
                try:
                    return await session.finish(future)
                except SessionLost as error:
                    losses += not isinstance(error, SessionMoved)
                    if losses == MAX_LOSSES_IN_A_ROW:
                        raise _given_up(pending.role, error) from error
                    future = self._start(self._driver.reopen())
        except ReplicaUnavailable as error:
            if pending.role is Role.VERIFIER:
                raise VerifierUnavailable(str(error)) from error
            raise


class _CycleClock:
    """Groups calls into cycles: a new one begins with each call of the first call's kind."""

    def __init__(self, observe: Observer) -> None:
        self._observe = observe
        self._first: type | None = None
        self._started = 0.0
        self._pass_seconds = 0.0

    def start(self, pending: Pending) -> None:
        now = time.perf_counter()
        if self._first is None:
            self._first, self._started = type(pending.request.call), now
        elif isinstance(pending.request.call, self._first):
            self._emit(now)

    def stop(self, pending: Pending, result: CallResult) -> None:
        self._pass_seconds += result.pass_seconds

    def end(self) -> None:
        self._emit(time.perf_counter())

    def _emit(self, now: float) -> None:
        self._observe(CycleTiming(now - self._started, self._pass_seconds))
        self._started, self._pass_seconds = now, 0.0


async def one_model(request: GenerateRequest, session: ReplicaSession) -> AsyncGenerator[Step | Finished]:
    """A completion that runs inside one replica; issued again for the rest when that replica is lost."""
    progress = _Progress(request)
    losses = 0
    last: SessionLost | None = None
    while losses < MAX_LOSSES_IN_A_ROW:
        rest = progress.rest()
        if rest.limits.max_tokens < 1:  # only the news of the end was lost
            yield Finished(FinishReason.LENGTH)
            return
        try:
            async with contextlib.aclosing(session.generate(rest)) as events:
                async for event in events:
                    news = progress.take(event) if isinstance(event, Step) else event
                    if news is not None:
                        losses = 0
                        yield news
            return
        except SessionLost as error:
            losses, last = losses + (not isinstance(error, SessionMoved)), error
    raise _given_up(Role.PROPOSER, last)


def _given_up(role: Role, last: SessionLost | None) -> ReplicaUnavailable:
    return ReplicaUnavailable(f"the {role} has lost the session {MAX_LOSSES_IN_A_ROW} times in a row: {last}")


class _Progress:
    """What the caller has got of a completion, and where to take it up again after a loss.

    In `mars` what is committed depends on where blocks begin: there it is the beginning of the cycle that was cut,
    and what the caller has of that already is not told again.
    """

    def __init__(self, request: GenerateRequest) -> None:
        self._request = request
        self._committed: list[int] = []
        self._cycle = 0  # tokens before the present cycle
        self._told = 0  # steps of the present cycle
        self._again = 0  # of those, how many still come once more

    def rest(self) -> GenerateRequest:
        """The request for what is missing."""
        if self._request.params.mode is not Mode.MARS:
            return remaining(self._request, self._committed)
        self._again = self._told
        return remaining(self._request, self._committed[: self._cycle])

    def take(self, step: Step) -> Step | None:
        """The step if it is news; None if the caller has it."""
        if self._again:
            self._again -= 1
            return None
        if step.cost.cycles:
            self._cycle, self._told = len(self._committed), 0
        self._told += 1
        self._committed += step.tokens
        return step
