"""Requests wait here for room, each in its turn."""

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from services.admission.queue import FairQueue, QueueFull, Ticket
from services.admission.rate import Rate
from services.admission.settings import AdmissionSettings
from services.api.errors import ApiError, overloaded


class Room(Protocol):
    """What a request needs while it runs."""

    def close(self) -> None:
        """Give it back."""


T = TypeVar("T", bound=Room)

Claim = Callable[[bool], T | None]
"""Takes the room that a request needs and returns it; None when there is too little, unless told that it must."""

LONGEST_RETRY_S = 120
UNKNOWN_RETRY_S = 5


@dataclass(frozen=True, slots=True)
class _Waiting(Generic[T]):
    claim: Claim[T]
    turn: asyncio.Future[T]


class Gate(Generic[T]):
    """Lets requests in while there is room, at most `most_running` at once; `T` is what a claim gives."""

    def __init__(self, settings: AdmissionSettings, most_running: int) -> None:
        self._queue: FairQueue[_Waiting[T]] = FairQueue(settings.max_queued_requests, settings.max_queued_tokens)
        self._largest = max(1, settings.max_queued_tokens)
        self._most_running = most_running
        self._rate = Rate()
        self.running = 0

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._queue)

    @property
    def queued_tokens(self) -> int:
        """Their tokens."""
        return self._queue.tokens

    async def enter(self, tokens: int, priority: int, claim: Claim[T]) -> T:
        """Wait for the turn and for room; what `claim` took. Call `leave` at the end. Raises `ApiError` (429).

        What has more tokens than may wait at all (many choices) counts as so many: an empty queue takes anything.
        Cancelled while it waits, it is out of the queue at once.
        """
        if not self._queue and (taken := self._try(claim)) is not None:
            self.running += 1
            return taken
        turn: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        ticket = self._offer(_Waiting(claim, turn), min(tokens, self._largest), priority)
        self.pump()
        try:
            return await turn
        except BaseException:
            self._queue.remove(ticket)
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # let in at this very moment
                turn.result().close()
                self.running -= 1
            self.pump()
            raise

    def leave(self, tokens: int) -> None:
        """A request that was let in is over, having served so many tokens."""
        self.running -= 1
        self._rate.add(tokens, time.monotonic())
        self.pump()

    def pump(self) -> None:
        """Let in whoever's turn it is, as long as there is room. Call it when there may be more."""
        while (head := self._queue.head) is not None:
            if head.item.turn.done():  # cancelled, and not yet told
                self._queue.remove(head)
            elif (taken := self._try(head.item.claim)) is not None:
                self._queue.admit(head)
                self.running += 1
                head.item.turn.set_result(taken)
            else:
                return

    def refuse(self, error: Exception) -> None:
        """Fail everyone who waits: no room is to be expected."""
        while (head := self._queue.head) is not None:
            self._queue.remove(head)
            if not head.item.turn.done():
                head.item.turn.set_exception(error)

    def _try(self, claim: Claim[T]) -> T | None:
        if self.running >= self._most_running:
            return None
        return claim(self.running == 0)  # alone, even what is larger than all the room must run

    def _offer(self, waiting: _Waiting[T], tokens: int, priority: int) -> "Ticket[_Waiting[T]]":
        try:
            return self._queue.offer(waiting, tokens, priority)
        except QueueFull as full:
            raise self._overloaded(full.excess) from None

    def _overloaded(self, excess: int) -> ApiError:
        seconds = self._rate.seconds_for(excess, time.monotonic())
        return overloaded(UNKNOWN_RETRY_S if seconds is None else min(max(1, math.ceil(seconds)), LONGEST_RETRY_S))
