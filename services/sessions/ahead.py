"""The call that a two-model cycle has begun without waiting for it."""

import asyncio

from prove_core.errors import ProveError
from prove_core.types import CallResult


class AheadCall:
    """At most one at a time. Whatever goes wrong with it is no failure: the cycle then proposes afresh."""

    def __init__(self) -> None:
        self._future: asyncio.Future[CallResult] | None = None

    def begin(self, future: asyncio.Future[CallResult] | None) -> None:
        """Take over a call that was sent; None where it could not be."""
        self._future = future
        if future is not None:
            future.add_done_callback(_look)

    async def collect(self) -> CallResult | None:
        """Its answer, or None where that got lost."""
        future, self._future = self._future, None
        if future is None:
            return None
        try:
            return await future
        except ProveError:  # a lost session among others: the next proposal opens it again
            return None

    def late(self) -> CallResult | None:
        """The answer of a call that nobody collected and that a later one has followed."""
        future, self._future = self._future, None
        if future is None or not future.done() or future.cancelled() or future.exception():
            return None
        return future.result()

    def cancel(self) -> None:
        """Give up on it."""
        if self._future is not None:
            self._future.cancel()


def _look(future: asyncio.Future[CallResult]) -> None:
    """An error that nobody asks for is no news."""
    if not future.cancelled():
        future.exception()
