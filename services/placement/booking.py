"""KV that one session may use, before and while it has a place on a replica."""

import asyncio
import time
from typing import Protocol

from prove_core.types import TokenIds
from services.channel.client import Endpoint
from services.channel.errors import ChannelClosed, Loss
from services.placement.load import Wish


class PlacedLease(Protocol):
    """A lease that names the replica it is on."""

    endpoint: Endpoint
    replica: str

    async def ended(self) -> Loss: ...

    def close(self) -> None: ...


class PlacingLessor(Protocol):
    """Where leases of one role come from, as wished if possible. Raises `ChannelClosed` when the replica is gone."""

    async def lease(self, session: str, wish: Wish) -> PlacedLease: ...


class Books(Protocol):
    """What a booking needs of its fleet."""

    lessor: PlacingLessor
    grant_limit_s: float

    def wish(self, booking: "Booking") -> Wish: ...

    def placed(self, booking: "Booking") -> None: ...

    def refused(self, replica: str | None) -> None: ...

    def forget(self, booking: "Booking") -> None: ...


class Booking:
    """A lessor for one session, which counts as `tokens` of KV from the start: somewhere, then where its lease is."""

    def __init__(self, fleet: Books, tokens: int, prompt: TokenIds, keys: tuple[int, ...]) -> None:
        self.tokens = tokens
        self.wished = tokens  # what the replica was told
        self.prompt = len(prompt)
        self.keys = keys
        self.replica: str | None = None  # where it is, or is about to be
        self.avoid: str | None = None  # where it was lost
        self.since = 0.0
        self._used = len(prompt)
        self._fleet = fleet
        self._lease: BookedLease | None = None

    async def lease(self, session: str) -> "BookedLease":
        """A place on a replica, the best one if it is still there. Raises `ChannelClosed`, also if none comes soon."""
        wish = self._fleet.wish(self)
        self.replica, self.wished = next(iter(wish.order), None), wish.tokens
        try:
            inner = await self._granted(session, wish)
        except BaseException as error:
            if isinstance(error, ChannelClosed):  # whoever is cancelled while it waits says nothing of the replica
                self._fleet.refused(self.replica)
            self.avoid, self.replica = self.replica, None
            raise
        self.replica, self.since = inner.replica, time.monotonic()
        self._lease = BookedLease(inner, self)
        self._fleet.placed(self)
        return self._lease

    async def _granted(self, session: str, wish: Wish) -> PlacedLease:
        """A replica that hangs grants nothing: ask again, perhaps another."""
        limit_s = self._fleet.grant_limit_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._fleet.lessor.lease(session, wish)
        except TimeoutError as error:
            raise ChannelClosed(f"no lease within {limit_s:g} s", Loss.SILENCE) from error

    def grew(self, tokens: int) -> None:
        """So many more are committed. What exceeds the expectation is booked as it comes."""
        self._used += tokens
        self.tokens = max(self.tokens, self._used)

    def move(self) -> None:
        """End the lease from this side: whoever holds it takes another, elsewhere."""
        if self._lease is not None:
            self._lease.moved.set()

    def left(self, lease: "BookedLease") -> None:
        """That lease is over; the KV stays booked for the next one."""
        if self._lease is lease:
            self.avoid, self.replica, self._lease = self.replica, None, None

    def close(self) -> None:
        """The session is over. Idempotent."""
        self._fleet.forget(self)


class BookedLease:
    """A lease that also ends when its session is to move."""

    def __init__(self, inner: PlacedLease, booking: Booking) -> None:
        self.endpoint = inner.endpoint
        self.replica = inner.replica
        self.moved = asyncio.Event()
        self._inner = inner
        self._booking = booking

    async def ended(self) -> Loss:
        """How it was lost, once the replica has ended it or died, or the session is to move."""
        inner, moved = asyncio.ensure_future(self._inner.ended()), asyncio.ensure_future(self.moved.wait())
        try:
            await asyncio.wait((inner, moved), return_when=asyncio.FIRST_COMPLETED)
            return inner.result() if inner.done() else Loss.MOVED
        finally:
            inner.cancel()
            moved.cancel()

    def close(self) -> None:
        """Give the place back; the booking stays."""
        self._booking.left(self)
        self._inner.close()
