"""Noticing a peer that is there and says nothing: a suspended process, a machine or a network that is gone."""

import asyncio
from collections.abc import Callable

BEATS = 4  # in a row without a byte from the peer


class Heartbeat:
    """Calls `silent` once the peer has sent nothing for about `limit_s`, and `beat` several times on the way there.

    It counts beats rather than seconds: whoever was itself suspended, or too busy to read, accuses nobody.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit_s: float,
        *,
        silent: Callable[[], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop = loop
        self._interval_s = limit_s / BEATS
        self._silent = silent
        self._beat = beat
        self._missed = 0
        self._timer = loop.call_later(self._interval_s, self._tick)

    def heard(self) -> None:
        """The peer has sent something."""
        self._missed = 0

    def stop(self) -> None:
        """Call nothing any more."""
        self._timer.cancel()

    def _tick(self) -> None:
        self._missed += 1
        if self._missed > BEATS:
            self._silent()
            return
        self._beat()
        self._timer = self._loop.call_later(self._interval_s, self._tick)
