"""What was measured lately, for those who ask now and then."""

import math
import time
from collections import deque


class Recent:
    """Values of the last `seconds`, at most `most` of them. One thread adds, any other may read."""

    def __init__(self, seconds: float, most: int = 1024) -> None:
        self._seconds = seconds
        self._values: deque[tuple[float, float]] = deque(maxlen=most)

    def add(self, value: float, now: float | None = None) -> None:
        """Note one value. `now`: seconds on the monotonic clock; default: this moment."""
        self._values.append((time.monotonic() if now is None else now, value))

    def quantile(self, share: float, now: float | None = None) -> float:
        """The smallest value that at least `share` of the recent ones do not exceed; 0 when there are none."""
        since = (time.monotonic() if now is None else now) - self._seconds
        values = sorted(value for at, value in tuple(self._values) if at >= since)
        return values[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0
