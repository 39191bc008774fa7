"""What the cluster was like a moment ago: a scrape must not wait for a busy controller."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

REFRESH_S = 3.0
STALE_S = 30.0

T = TypeVar("T")


class Latest(Generic[T]):
    """The last answer of `ask`, which `watch` asks again and again."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._answer: tuple[float, T] | None = None

    async def watch(self) -> None:
        """Until cancelled. What fails is tried again."""
        while True:
            await self.refresh()
            await asyncio.sleep(REFRESH_S)

    async def refresh(self) -> None:
        """Ask once."""
        try:
            self._answer = (time.monotonic(), await self._ask())
        except Exception:
            logger.warning("the state of the cluster could not be read", exc_info=True)

    def __call__(self) -> T:
        """The answer, from any thread. Raises `TimeoutError` when there is none that is fresh enough."""
        answer = self._answer
        if answer is None or time.monotonic() - answer[0] > STALE_S:
            raise TimeoutError("the state of the cluster is unknown")
        return answer[1]
