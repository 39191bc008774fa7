"""How many CPU threads a pass should take, found out while running.

Threads of a pass wait for each other hundreds of times. On idle cores two of them halve a pass; where another process
wants a core, each wait lasts until the scheduler brings the missing thread back, and one thread alone is faster.
"""

import time
from collections.abc import Callable
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

    def timed(self, rows: int) -> "_Timed":
        """Around a pass of `rows` rows; gives the number of threads it runs with."""
        bucket = self._buckets.get(rows.bit_length())
        if bucket is None:
            bucket = self._buckets[rows.bit_length()] = _Bucket([None, None], chosen=1)
        return _Timed(self, bucket, rows)

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


class _Timed:
    """The context of one pass."""

    def __init__(self, choice: ThreadChoice, bucket: _Bucket, rows: int) -> None:
        self._choice, self._bucket, self._rows = choice, bucket, rows
        self._trial = bucket.until_trial <= 0
        self._index = 1 - bucket.chosen if self._trial else bucket.chosen

    def __enter__(self) -> int:
        threads = (self._choice.few, self._choice.many)[self._index]
        _use(threads)
        self._begin = self._choice.clock()
        return threads

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        seconds = self._choice.clock() - self._begin
        _use(self._choice.many)  # what else runs in this thread is not ours to slow down
        if kind is None:
            self._choice._note(self._bucket, self._index, seconds / self._rows, self._trial)


def _use(threads: int) -> None:
    """Torch looks after several libraries when it is told, even what it knows."""
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


def thread_choice(most: int) -> ThreadChoice | None:
    """The choice between all of `most` threads and half of them; None where there is none."""
    return ThreadChoice(max(1, most // 2), most) if most > 1 else None
