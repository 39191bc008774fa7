"""The order in which waiting requests start, and how many may wait. Pure.

Lower `priority` first. Within a priority each request gets a tag when it comes: the tokens admitted so far, plus its
own. The least tag is next. So a short request passes long ones that came a little earlier, and a long one waits no
longer than it takes to admit those that are ahead of it and as many tokens as it has itself: whatever comes after that
has a later tag. Requests of one size start in the order they came.
"""

import bisect
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


class QueueFull(Exception):
    """No more may wait. `excess`: tokens that must be admitted before this request could."""

    def __init__(self, excess: int) -> None:
        super().__init__("the queue is full")
        self.excess = excess


@dataclass(frozen=True, slots=True, order=True)
class Ticket(Generic[T]):
    """A place in the queue. Compares by when its turn is."""

    priority: int
    tag: int
    number: int
    tokens: int = field(compare=False)
    item: T = field(compare=False)


class FairQueue(Generic[T]):
    """Bounded by requests and by tokens."""

    def __init__(self, max_requests: int, max_tokens: int) -> None:
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._waiting: list[Ticket[T]] = []
        self._admitted = 0  # tokens, since the start
        self._number = 0
        self.tokens = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def head(self) -> Ticket[T] | None:
        """Whose turn is next."""
        return self._waiting[0] if self._waiting else None

    def offer(self, item: T, tokens: int, priority: int = 0) -> Ticket[T]:
        """Queue it. Raises `QueueFull`."""
        excess = self.tokens + tokens - self._max_tokens
        if excess > 0 or len(self._waiting) >= self._max_requests:
            raise QueueFull(excess if excess > 0 else tokens)
        self._number += 1
        ticket = Ticket(priority, self._admitted + tokens, self._number, tokens, item)
        bisect.insort(self._waiting, ticket)
        self.tokens += tokens
        return ticket

    def admit(self, ticket: Ticket[T]) -> None:
        """It starts now, and time goes on for the others."""
        if self.remove(ticket):
            self._admitted += ticket.tokens

    def remove(self, ticket: Ticket[T]) -> bool:
        """It waits no longer. Whether it did."""
        index = bisect.bisect_left(self._waiting, ticket)
        if index == len(self._waiting) or self._waiting[index] is not ticket:
            return False
        del self._waiting[index]
        self.tokens -= ticket.tokens
        return True
