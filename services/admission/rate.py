"""What requests mostly come to, and how fast they are served: learnt from those that end."""

from collections import deque

FIRST_GUESS = 512.0
FOLLOW = 0.05
WINDOW_S = 60.0


class Expected:
    """Tokens of a completion, from the mean of those that ended and how far they stray from it."""

    def __init__(self) -> None:
        self._mean = FIRST_GUESS / 2
        self._spread = FIRST_GUESS / 4

    def observe(self, tokens: float) -> None:
        """One has ended by itself or at its limit."""
        self._spread += FOLLOW * (abs(tokens - self._mean) - self._spread)
        self._mean += FOLLOW * (tokens - self._mean)

    def tokens(self, limit: int) -> int:
        """What to expect of a completion of at most `limit` tokens: seldom more."""
        return min(limit, max(1, round(self._mean + 2 * self._spread)))


class Rate:
    """Tokens per second lately."""

    def __init__(self) -> None:
        self._ended: deque[tuple[float, int]] = deque()

    def add(self, tokens: int, now: float) -> None:
        """A request of so many tokens has ended. `now`: monotonic seconds."""
        self._ended.append((now, tokens))
        self._forget(now)

    def seconds_for(self, tokens: int, now: float) -> float | None:
        """How long so many take; None when nothing has ended lately."""
        self._forget(now)
        if not self._ended:
            return None
        served = sum(count for _, count in self._ended)
        return tokens * max(now - self._ended[0][0], 1.0) / max(served, 1)

    def _forget(self, now: float) -> None:
        while self._ended and self._ended[0][0] < now - WINDOW_S:
            self._ended.popleft()
