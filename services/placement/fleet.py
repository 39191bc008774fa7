"""The replicas of one role as a Router sees them, and what it has placed on each."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from prove_core.types import TokenIds
from services.placement.booking import Booking, PlacingLessor
from services.placement.load import Load, Wish
from services.placement.prefix import PrefixMemory, page_keys
from services.placement.rank import Standing, ranked, worth_moving
from services.placement.room import Room, fits
from services.placement.speed import Speeds

logger = logging.getLogger(__name__)

REFRESH_S = 1.0
GRANT_LIMIT_S = 5.0
STAY_S = 5.0  # a session that was just placed does not move
SHUN_S = 10.0  # a replica that refused a session, or did not answer, is the last choice for so long

Report = Callable[[], Awaitable[Sequence[Load]]]


class Fleet:
    """Places sessions by the replicas' reports, which are a second old at most, and by what it has sent since.

    Without reports nothing is known of room or load: every booking is taken, and the lessor's own order holds.
    """

    def __init__(
        self,
        lessor: PlacingLessor,
        report: Report | None,
        *,
        page_size: int,
        most_sessions: int,
        grant_limit_s: float = GRANT_LIMIT_S,
    ) -> None:
        """`most_sessions` on a replica; one that grants no lease within `grant_limit_s` has refused it."""
        self.lessor = lessor
        self.grant_limit_s = grant_limit_s
        self._report = report
        self._page_size = page_size
        self._most_sessions = most_sessions
        self._loads: dict[str, Load] = {}
        self._others: dict[str, tuple[int, int]] = {}  # sessions and tokens that other Routers hold there
        self._sent: dict[str, int] = {}  # rows sent since the last report
        self._bookings: dict[Booking, None] = {}
        self._shunned: dict[str, float] = {}  # until when, by replica
        self._speeds = Speeds()
        self._prefixes = PrefixMemory()
        self._down_since: float | None = None

    def down_for(self, now: float) -> float:
        """Seconds without a single replica; 0 while there is one."""
        return 0.0 if self._down_since is None else now - self._down_since

    def book(self, tokens: int, prompt: TokenIds, count: int, *, force: bool) -> list[Booking] | None:
        """KV for `count` sessions of `tokens` each that share `prompt`; None when there is no room, unless forced."""
        if not force and self._loads and not fits(self._rooms(), self._pending(), tokens, count):
            return None
        keys = page_keys(prompt, self._page_size)
        bookings = [Booking(self, tokens, prompt, keys) for _ in range(count)]
        self._bookings.update(dict.fromkeys(bookings))
        return bookings

    def wish(self, booking: Booking) -> Wish:
        """Where it should go now. Replicas where it was lost, or where nobody got a place lately, come last."""
        now = time.monotonic()
        last = {name for name, until in self._shunned.items() if until > now} | {booking.avoid}
        names = sorted(self._loads, key=self._prefixes.pages)  # among equals, the one whose cache is emptiest
        standings = [self._standing(name, booking.keys) for name in names]
        order = ranked(standings, booking.tokens, booking.prompt)
        order.sort(key=lambda name: name in last)
        if order:
            matched = self._prefixes.matched(order[0], booking.keys) * self._page_size
            self._sent[order[0]] = self._sent.get(order[0], 0) + booking.prompt - matched
        return Wish(tuple(order), booking.tokens)

    def placed(self, booking: Booking) -> None:
        """It has a lease on `booking.replica`."""
        self._shunned.pop(booking.replica or "", None)
        load = self._loads.get(booking.replica or "")
        if load is not None:
            self._prefixes.remember(load.replica, booking.keys, load.capacity // self._page_size)

    def refused(self, replica: str | None) -> None:
        """No lease was to be had there, or not in time."""
        if replica is not None:
            self._shunned[replica] = time.monotonic() + SHUN_S

    def forget(self, booking: Booking) -> None:
        """It needs no KV any more."""
        self._bookings.pop(booking, None)

    async def refresh(self) -> None:
        """Take in what the replicas report, and move one session if that is clearly worth it."""
        if self._report is None:
            return
        loads = {load.replica: load for load in await self._report()}
        if not loads:  # what was known last still bounds what is admitted until a replica is back
            self._others = {}
            self._down_since = time.monotonic() if self._down_since is None else self._down_since
            return
        self._down_since = None
        self._loads, self._sent = loads, {}
        self._others = {name: self._beyond_ours(load) for name, load in loads.items()}
        self._speeds.learn(loads)
        self._prefixes.keep(loads)
        self._shunned = {name: until for name, until in self._shunned.items() if name in loads}
        self._rebalance(time.monotonic())

    async def watch(self, after: Callable[[], None]) -> None:
        """Refresh for ever, and call `after` each time."""
        while True:
            try:
                await self.refresh()
            except Exception as error:  # a replica that hangs is Serve's to replace; until then the last reports hold
                logger.debug("no reports from the replicas: %r", error)
            after()
            await asyncio.sleep(REFRESH_S)

    def _beyond_ours(self, load: Load) -> tuple[int, int]:
        ours = list(self._at(load.replica))
        tokens = sum(booking.wished for booking in ours)
        return max(0, load.sessions - len(ours)), max(0, load.reserved - tokens)

    def _at(self, replica: str) -> Iterator[Booking]:
        return (booking for booking in self._bookings if booking.replica == replica)

    def _pending(self) -> list[int]:
        return [booking.tokens for booking in self._bookings if booking.replica not in self._loads]

    def _rooms(self) -> list[Room]:
        standings = [self._standing(name) for name in self._loads]
        return [(standing.room, self._most_sessions - standing.sessions) for standing in standings]

    def _standing(self, replica: str, keys: Sequence[int] = ()) -> Standing:
        load = self._loads[replica]
        sessions, reserved = self._others.get(replica, (0, 0))
        for booking in self._at(replica):
            sessions, reserved = sessions + 1, reserved + booking.tokens
        return Standing(
            replica,
            slowness=self._speeds.slowness(replica),
            queued_rows=load.queued_rows + self._sent.get(replica, 0),
            sessions=sessions,
            room=load.capacity - reserved if sessions < self._most_sessions else 0,
            matched=self._prefixes.matched(replica, keys) * self._page_size,
        )

    def _rebalance(self, now: float) -> None:
        """Move at most one session, the one with the least to read, from where most waits to where least does."""
        standings = [self._standing(name) for name in self._loads]
        if len(standings) < 2:
            return
        order = ranked(standings, 0, 0)
        best, worst = (next(one for one in standings if one.replica == order[place]) for place in (0, -1))
        movable = [booking for booking in self._at(worst.replica) if now - booking.since >= STAY_S]
        lightest = min(movable, key=lambda booking: booking.tokens, default=None)
        if lightest is not None and worth_moving(worst, best, lightest.tokens):
            lightest.move()
