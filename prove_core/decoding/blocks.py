"""A sample of the blocks that a proposer made lately."""

from collections.abc import Sequence

from prove_core.decoding.forecast import Block
from prove_core.decoding.plan import Other

_KEPT = 32
_EVERY = 8  # of so many blocks one is kept, or a few passes of a full engine would be all that is remembered
_NEWS = 0.02  # weight of a block in what is typical
_TYPICAL = 0.7  # chance of a draft before anything is known


class Blocks:
    """The chances of `depth` drafts in each of some blocks: at first made up ones, from hopeless to sure."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.kept = [Block((((index + 0.5) / _KEPT) ** 0.5,) * depth) for index in range(_KEPT)]
        self._typical = [_TYPICAL] * depth
        self._seen = 0

    @property
    def known(self) -> bool:
        """Whether none is made up any more."""
        return self._seen >= _KEPT

    def add(self, chances: Sequence[float], others: Sequence[Other] = ()) -> None:
        """One more block, each chance given that the drafts before it match; drafts that it lacks would be typical."""
        known = chances[: self.depth]
        for index, chance in enumerate(known):
            self._typical[index] += _NEWS * (chance - self._typical[index])
        if self._seen < _KEPT or self._seen % _EVERY == 0:
            turn = self._seen if self._seen < _KEPT else self._seen // _EVERY
            self.kept[turn * _STEP % _KEPT] = Block((*known, *self._typical[len(known) :]), tuple(others))
        self._seen += 1


_STEP = 7  # through the sample, so that the made up blocks go evenly
