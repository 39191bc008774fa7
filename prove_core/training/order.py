"""The order in which examples are visited: a pure function of seed and step, so that a resumed run needs no state."""

import random
from collections.abc import Sequence
from functools import lru_cache

POOL = 16  # batches whose examples are sorted by length together: little padding, still random order


class Order:
    """Batches of example indices, epoch after epoch. Every epoch visits each example at most once, in a new order."""

    def __init__(self, lengths: Sequence[int], batch: int, seed: int) -> None:
        self._lengths = list(lengths)
        self._batch = min(batch, len(self._lengths))
        self._seed = seed
        self._epoch = lru_cache(maxsize=1)(self._shuffle)

    @property
    def batches_per_epoch(self) -> int:
        """Full batches in one pass over the data; the few examples left over wait for another epoch."""
        return len(self._lengths) // self._batch

    def batch(self, index: int) -> list[int]:
        """The example indices of the `index`-th batch since the start of training."""
        epoch, position = divmod(index, self.batches_per_epoch)
        return self._epoch(epoch)[position]

    def _shuffle(self, epoch: int) -> list[list[int]]:
        rng = random.Random(f"{self._seed}/{epoch}")
        order = list(range(len(self._lengths)))
        rng.shuffle(order)
        order = order[: self.batches_per_epoch * self._batch]
        batches = []
        for start in range(0, len(order), self._batch * POOL):
            pool = sorted(order[start : start + self._batch * POOL], key=self._lengths.__getitem__)
            batches += [pool[i : i + self._batch] for i in range(0, len(pool), self._batch)]
        rng.shuffle(batches)
        return batches
