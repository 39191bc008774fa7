"""Leases through Ray Serve: one streaming handle call per session, which Serve counts as an ongoing request."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from ray.exceptions import RayError
from ray.serve.exceptions import DeploymentUnavailableError, RayServeException
from ray.serve.handle import DeploymentHandle

from services.channel.client import Endpoint
from services.channel.errors import ChannelClosed, Loss
from services.placement.load import NO_WISH, Load, Wish

REPORT_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What a Router must know of a role before it admits requests. `capacity`: tokens its KV pool holds."""

    capacity: int
    pid: int


@dataclass(frozen=True, slots=True)
class Grant:
    """First item of a lease: where the replica's channel is, and its name in `Load`s."""

    endpoint: Endpoint
    replica: str


class _Stream(Protocol):
    """A handle's streaming response."""

    def __aiter__(self) -> AsyncIterator[Grant]: ...

    async def __anext__(self) -> Grant: ...

    def cancel(self) -> None: ...


class ServeLease:
    """A lease whose stream stays open until either side ends it."""

    def __init__(self, stream: _Stream, grant: Grant) -> None:
        self._stream = stream
        self.endpoint = grant.endpoint
        self.replica = grant.replica

    async def ended(self) -> Loss:
        """Return when the replica has ended it or died."""
        with contextlib.suppress(RayError, RayServeException, StopAsyncIteration):
            await anext(self._stream)
        return Loss.LEASE

    def close(self) -> None:
        """Cancel the handle call: the replica's generator is closed and releases the session."""
        self._stream.cancel()


class ServeLessor:
    """Leases of one deployment, and its replicas' reports."""

    def __init__(self, handle: DeploymentHandle) -> None:
        self._handle = handle
        self._lease = handle.options(method_name="lease", stream=True)

    async def loads(self) -> list[Load]:
        """What every running replica reports. Raises `TimeoutError` when one of them does not answer."""
        try:
            loads: list[Load] = await self._handle.broadcast("load").results_async(timeout_s=REPORT_TIMEOUT_S)
        except DeploymentUnavailableError:
            return []
        return loads

    async def lease(self, session: str, wish: Wish = NO_WISH) -> ServeLease:
        """A place on the first replica of the wish that has one, else on any; waits while there is none.

        Raises `ChannelClosed` if the replica dies meanwhile.
        """
        stream = self._lease.remote(session, wish)
        try:
            grant = await anext(stream)
        except (RayError, RayServeException, StopAsyncIteration) as error:
            raise ChannelClosed(f"no lease: {type(error).__name__}") from error
        except BaseException:
            stream.cancel()
            raise
        return ServeLease(stream, grant)
