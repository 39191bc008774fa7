"""How many CPU threads a pass should take, found out while running.

Threads of a pass wait for each other hundreds of times. On idle cores two of them halve a pass; where another process
wants a core, each wait lasts until the scheduler brings the missing thread back, and one thread alone is faster.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

_FIRST_TRIAL = 8  # passes before the other choice is tried again; doubled while the trial loses
_LAST_TRIAL = 256
_MEMORY = 0.7


@dataclass(slots=True)
class _Bucket:
    """Passes of about one size: seconds per pass by choice, the choice in use, and when to doubt it."""

    seconds: list[float | None]
    chosen: int
    interval: int = _FIRST_TRIAL
    until_trial: int = 1


@dataclass(slots=True)
class ThreadChoice:
    """Sets torch's thread count before each pass: `few` or `many`, whichever has been faster for its size lately."""

    few: int
    many: int
    clock: Callable[[], float] = time.perf_counter
    _buckets: dict[int, _Bucket] = field(default_factory=dict)

    @contextmanager
    def timed(self, rows: int) -> Iterator[int]:
        """Around a pass of `rows` rows; gives the number of threads it runs with."""
        bucket = self._buckets.setdefault(rows.bit_length(), _Bucket([None, None], chosen=1))
        trial = bucket.until_trial <= 0
        index = 1 - bucket.chosen if trial else bucket.chosen
        threads = (self.few, self.many)[index]
        torch.set_num_threads(threads)
        begin = self.clock()
        try:
            yield threads
        finally:
            torch.set_num_threads(self.many)  # what else runs in this thread is not ours to slow down
        self._note(bucket, index, (self.clock() - begin) / rows, trial)

    def _note(self, bucket: _Bucket, index: int, seconds: float, trial: bool) -> None:
        known = bucket.seconds[index]
        bucket.seconds[index] = seconds if known is None or trial else _MEMORY * known + (1 - _MEMORY) * seconds
        bucket.until_trial -= 1
        if not trial:
            return
        here, there = bucket.seconds[bucket.chosen], bucket.seconds[index]
        if here is not None and there is not None and there < here:
            bucket.chosen, bucket.interval = index, _FIRST_TRIAL
        else:
            bucket.interval = min(2 * bucket.interval, _LAST_TRIAL)
        bucket.until_trial = bucket.interval


def thread_choice(most: int) -> ThreadChoice | None:
    """The choice between all of `most` threads and half of them; None where there is none."""
    return ThreadChoice(max(1, most // 2), most) if most > 1 else None
