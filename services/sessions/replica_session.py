"""A Router's hold on one replica for one completion: a lease from Serve, a channel to its address, and healing."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from prove_core.errors import EngineStopped, PassFailed, SessionLost
from prove_core.types import CallRequest, CallResult, Finished, GenerateRequest, Step
from services.channel.client import Channel, ChannelPool, Endpoint
from services.channel.errors import ChannelClosed, Loss, ReplicaUnavailable

logger = logging.getLogger(__name__)

FIRST_BACKOFF_S = 0.05
MAX_BACKOFF_S = 2.0
PATIENCE_S = 60.0

LOSSES = (ChannelClosed, EngineStopped, PassFailed)  # errors after which a session is opened elsewhere

Recovered = Callable[[Loss, float], None]
"""Told of each lease taken in place of a lost one: how that was lost, and the seconds it took."""


class SessionMoved(SessionLost):
    """Given up for a better place: nothing has failed."""


class Lease(Protocol):
    """A replica's place for one session. Serve counts it as an ongoing request while it is open."""

    endpoint: Endpoint

    async def ended(self) -> Loss:
        """How it was lost, once it is: the replica died or was told to go, or the session is to move."""

    def close(self) -> None:
        """Give it back. Idempotent."""


class Lessor(Protocol):
    """Where leases of one role come from."""

    async def lease(self, session: str) -> Lease:
        """A place on some replica. Raises `ChannelClosed` when the chosen one is gone or says nothing."""


@dataclass(frozen=True, slots=True)
class _Open:
    """One lease in use. `name` is the session on the replica: fresh per lease, so late releases hit nothing."""

    name: str
    lease: Lease
    channel: Channel
    watch: asyncio.Task[Loss]

    @property
    def loss(self) -> Loss:
        """How it was lost, if it was."""
        return self.watch.result() if self.watch.done() and not self.watch.cancelled() else Loss.CONNECTION


class ReplicaSession:
    """One session on some replica of one role, opened on first use and opened again wherever it gets lost.

    Whenever the tokens may be gone, `SessionLost` tells the caller to send them all again (keep=0).
    """

    def __init__(
        self,
        session: str,
        lessor: Lessor,
        channels: ChannelPool,
        *,
        patience_s: float = PATIENCE_S,
        recovered: Recovered = lambda loss, seconds: None,
    ) -> None:
        self._session = session
        self._lessor = lessor
        self._channels = channels
        self._patience_s = patience_s
        self._recovered = recovered
        self._leases = 0
        self._open: _Open | None = None

    async def open(self) -> None:
        """Take a lease if there is none yet. Raises `ReplicaUnavailable`."""
        if self._open is None:
            await self._take_any_lease()

    def start(self, request: CallRequest) -> asyncio.Future[CallResult] | None:
        """Send one call without waiting; None when the session is not open. Give the result to `finish`."""
        held = self._open
        if held is None or held.channel.closed or held.watch.done():
            return None
        return held.channel.submit(replace(request, commit=replace(request.commit, session=held.name)))

    async def finish(self, future: asyncio.Future[CallResult] | None) -> CallResult:
        """The answer to what `start` sent. Raises `SessionLost`, `ReplicaUnavailable`, or the engine's error."""
        if future is None:
            raise await self._reopened(self._open.loss if self._open else Loss.LEASE, "the session was not open")
        try:
            return await future
        except SessionLost:
            self._recovered(Loss.SESSION, 0.0)
            raise
        except LOSSES as error:
            raise await self._reopened(_loss(error), str(error)) from error

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Step | Finished]:
        """Run a whole completion on the replica. Raises `SessionLost` when it must be issued again."""
        await self.open()
        held = self._open
        assert held is not None
        try:
            if held.watch.done():
                raise ChannelClosed("the lease has ended", held.loss)
            async with contextlib.aclosing(held.channel.generate(replace(request, session=held.name))) as stream:
                async for event in stream:
                    yield event
        except LOSSES as error:
            raise await self._reopened(_loss(error), str(error)) from error

    def reset(self) -> None:
        """Forget the session's tokens there and keep its place: a call with keep=0, or a completion, may follow."""
        if self._open is not None:
            self._open.channel.release(self._open.name)

    def close(self) -> None:
        """Release the session wherever it is. Idempotent."""
        held, self._open = self._open, None
        if held is not None:
            held.watch.cancel()
            held.channel.release(held.name)
            held.lease.close()

    async def _reopened(self, loss: Loss, reason: str) -> SessionLost:
        """Open it anew; what to tell the caller."""
        began = time.perf_counter()
        self.close()
        await self._take_any_lease()
        seconds = time.perf_counter() - began
        self._recovered(loss, seconds)
        logger.info("session opened again", extra={"session": self._session, "loss": loss.value, "seconds": seconds})
        return SessionMoved(reason) if loss is Loss.MOVED else SessionLost(reason)

    async def _take_any_lease(self) -> None:
        """Try until the patience ends. Pauses grow and differ, so that the sessions of a lost replica spread out."""
        reason: Exception | None = None
        backoff = FIRST_BACKOFF_S
        try:
            async with asyncio.timeout(self._patience_s):
                while self._open is None:
                    try:
                        await self._take_lease()
                    except ChannelClosed as error:
                        reason = error
                        await asyncio.sleep(backoff * random.uniform(0.5, 1.0))
                        backoff = min(2 * backoff, MAX_BACKOFF_S)
        except TimeoutError:
            message = f"no replica could be had within {self._patience_s:g} s"
            raise ReplicaUnavailable(f"{message}: {reason}" if reason else message) from reason

    async def _take_lease(self) -> None:
        self._leases += 1
        name = f"{self._session}/{self._leases}"
        lease = await self._lessor.lease(name)
        try:
            channel = await self._channels.get(lease.endpoint)
        except BaseException:
            lease.close()
            raise
        watch = asyncio.create_task(_fail_when_ended(lease, channel, name))
        self._open = _Open(name, lease, channel, watch)


def _loss(error: ChannelClosed | EngineStopped | PassFailed) -> Loss:
    if isinstance(error, ChannelClosed):
        return error.loss
    return Loss.ENGINE if isinstance(error, EngineStopped) else Loss.PASS


async def _fail_when_ended(lease: Lease, channel: Channel, name: str) -> Loss:
    loss = Loss.LEASE
    try:
        loss = await lease.ended()
    except Exception:  # however it ended, nobody holds the place any more
        logger.debug("a lease ended with an error", exc_info=True)
    channel.abandon(name, ChannelClosed("the lease has ended", loss))
    return loss
