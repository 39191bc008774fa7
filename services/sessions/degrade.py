"""Modes of two models without a verifier: the proposer goes on alone, exactly, until one is back."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace

from prove_core.types import Finished, FinishReason, GenerateRequest, Mode, Step
from services.channel.errors import ReplicaUnavailable, VerifierUnavailable
from services.sessions.replica_session import ReplicaSession

MAX_RETURNS = 3  # of one completion: one that costs verifier after verifier is not let near them for ever


@dataclass(frozen=True, slots=True)
class Degraded:
    """From here on the proposer decodes alone, until there is a verifier again."""


Event = Step | Finished | Degraded
Segment = Callable[[GenerateRequest], AsyncGenerator[Step | Finished]]


@dataclass(slots=True)
class Outlook:
    """Whether a Router found a verifier lately; shared by its requests, so that only the first of them wait in vain."""

    changed: Callable[[bool], None] = lambda missing: None
    missing: bool = field(default=False, init=False)

    def set(self, *, missing: bool) -> None:
        """Remember what a request has found."""
        if missing is not self.missing:
            self.missing = missing
            self.changed(missing)


@dataclass(frozen=True, slots=True)
class Fallback:
    """What a two-model mode does without a verifier: the proposer goes on in `mode` while the `outlook` is bad."""

    mode: Mode
    outlook: Outlook


class DegradingRun:
    """One completion of a two-model mode, in segments: each continues behind the tokens committed by then."""

    def __init__(
        self,
        request: GenerateRequest,
        together: Segment,
        alone: Segment,
        sessions: tuple[ReplicaSession, ReplicaSession],
        fallback: Fallback,
    ) -> None:
        """`sessions`: the proposer's and the verifier's."""
        self._request = request
        self._together = together
        self._alone = alone
        self._proposer, self._verifier = sessions
        self._mode = fallback.mode
        self._outlook = fallback.outlook
        self._committed: list[int] = []
        self._returns = 0

    async def events(self) -> AsyncGenerator[Event]:
        """As `services.sessions.driver.complete`, with news of where it is degraded. Raises `ReplicaUnavailable`."""
        while self._rest().limits.max_tokens:
            segment = self._without_verifier() if self._outlook.missing else self._with_verifier()
            async with contextlib.aclosing(segment) as events:
                async for event in events:
                    if isinstance(event, Step):
                        self._committed += event.tokens
                    yield event
                    if isinstance(event, Finished):
                        return
        yield Finished(FinishReason.LENGTH)  # a segment was left with its last token, before the news of the end

    async def _with_verifier(self) -> AsyncGenerator[Event]:
        try:
            async with contextlib.aclosing(self._together(self._rest())) as events:
                async for event in events:
                    yield event
        except VerifierUnavailable:
            self._outlook.set(missing=True)
            self._proposer.reset()
            self._verifier.reset()  # one that lost the session again and again may hold it: the next segment's is new

    async def _without_verifier(self) -> AsyncGenerator[Event]:
        yield Degraded()
        rest = self._rest()
        rest = replace(rest, params=replace(rest.params, mode=self._mode))
        back = asyncio.create_task(self._reach_verifier())
        try:
            async with contextlib.aclosing(self._alone(rest)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, Step) and back.done() and self._returns < MAX_RETURNS:
                        break
        finally:
            back.cancel()
            await asyncio.gather(back, return_exceptions=True)
        self._returns += 1

    async def _reach_verifier(self) -> None:
        """Until there is one; the session is open then."""
        while True:
            try:
                await self._verifier.open()
            except ReplicaUnavailable:
                continue
            self._outlook.set(missing=False)
            return

    def _rest(self) -> GenerateRequest:
        return remaining(self._request, self._committed)


def remaining(request: GenerateRequest, committed: list[int]) -> GenerateRequest:
    """What is left of `request` once these tokens of its completion are committed."""
    done = len(committed)
    limits = replace(
        request.limits,
        max_tokens=request.limits.max_tokens - done,
        min_tokens=max(0, request.limits.min_tokens - done),
    )
    return replace(request, prompt=(*request.prompt, *committed), limits=limits)
