"""Leases through Ray Serve: one streaming handle call per session, which Serve counts as an ongoing request."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from services.channel.client import Endpoint
from services.channel.errors import ChannelClosed


@dataclass(frozen=True, slots=True)
class Facts:
    """What a Router must know of a role before it admits requests. `capacity`: tokens its KV pool holds."""

    capacity: int
    pid: int


@dataclass(frozen=True, slots=True)
class Grant:
    """First item of a lease: where the replica's channel is."""

    endpoint: Endpoint


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

    async def ended(self) -> None:
        """Return when the replica has ended it or died."""
        with contextlib.suppress(RayError, RayServeException, StopAsyncIteration):
            await anext(self._stream)

    def close(self) -> None:
        """Cancel the handle call: the replica's generator is closed and releases the session."""
        self._stream.cancel()


class ServeLessor:
    """Leases of one deployment; Serve picks the replica with the fewest.

    Open the leases of one HTTP request one after another: some request routers lose concurrent calls of one parent.
    """

    def __init__(self, handle: DeploymentHandle) -> None:
        self._lease = handle.options(method_name="lease", stream=True)

    async def lease(self, session: str) -> ServeLease:
        """A place on the replica that Serve picks; waits while there is none. Raises `ChannelClosed` if it dies."""
        stream = self._lease.remote(session)
        try:
            grant = await anext(stream)
        except (RayError, RayServeException, StopAsyncIteration) as error:
            raise ChannelClosed(f"no lease: {type(error).__name__}") from error
        except BaseException:
            stream.cancel()
            raise
        return ServeLease(stream, grant)
