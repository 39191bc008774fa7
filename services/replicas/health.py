"""When a replica must be replaced, and what becomes of its sessions then."""

import asyncio
import logging
from typing import Protocol

from prove_core.errors import EngineStopped
from services.channel.server import ChannelServer

logger = logging.getLogger(__name__)

MAX_FAILURES = 8  # of passes in a row: more than one request that is to blame itself is tried


class Watched(Protocol):
    """What a health check asks of `prove_core.engine.Engine`."""

    @property
    def alive(self) -> bool: ...

    @property
    def pass_age_s(self) -> float: ...

    @property
    def failures(self) -> int: ...


class Peers(Protocol):
    """The other ranks of a tensor-parallel replica."""

    async def failure(self) -> str | None: ...


class Health:
    """The state of one replica, as Serve asks for it. Once failed it stays so."""

    def __init__(self, engine: Watched, server: ChannelServer, pass_limit_s: float, peers: Peers | None = None) -> None:
        self._engine = engine
        self._peers = peers
        self._server = server
        self._pass_limit_s = pass_limit_s
        self.failed = asyncio.Event()

    async def check(self) -> None:
        """Raise `EngineStopped` when the engine thread has ended, hangs or fails, or another rank does.

        Serve stops a failed replica like any other, and would wait for its sessions: so they are sent away at once.
        """
        reason = self._failure() or (None if self._peers is None else await self._peers.failure())
        if reason is not None and not self.failed.is_set():
            logger.error("this replica gives up its sessions: %s", reason)
            self.failed.set()
            await self._server.stop()
        if self.failed.is_set():
            raise EngineStopped(reason or "the engine thread hung")

    def _failure(self) -> str | None:
        if not self._engine.alive:
            return "the engine thread has ended"
        if self._engine.pass_age_s > self._pass_limit_s:
            return f"a forward pass has lasted longer than {self._pass_limit_s:g} s"
        if self._engine.failures >= MAX_FAILURES:
            return f"{self._engine.failures} forward passes in a row have failed"
        return None
