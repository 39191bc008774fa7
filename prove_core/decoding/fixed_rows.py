"""The planner of mode `fused`: a pass has so many rows, and they go where they are expected to commit most."""

from collections.abc import Sequence
from operator import attrgetter

from prove_core.decoding.ahead import Ahead, ahead
from prove_core.decoding.calibration import chances, other_chances
from prove_core.decoding.drafts import Drafts
from prove_core.decoding.lookup import Repeat
from prove_core.decoding.plan import Plan, RowCost, options
from prove_core.types import Calibration

_UNKNOWN = 0.6  # chance of a draft that nothing is known of yet, given that those before it matched
_MEMORY = 0.9  # weight of the past in the outlook, per pass
_REFRESH = 8  # passes
_worth = attrgetter("worth")


class FixedRows:
    """Implements `Planner` for one completion: passes of at most `rows` rows, at most `depth` placeholders in a place.

    Its outlook says how likely the first drafts of a new block are to match, from this completion so far.
    """

    def __init__(self, rows: int, depth: int, calibration: Calibration) -> None:
        self._calibration = calibration
        free = [0.0] * rows
        self._cost = RowCost(free, free, 1.0)
        self._outlook = [_UNKNOWN ** (place + 1) for place in range(depth)]
        self._ahead: Ahead = ahead(self._outlook)
        self._new = 0  # drafts of a new block, in the latest plan
        self._learnt = 0

    def plan(self, drafts: Drafts, repeat: Repeat, room: int) -> Plan:
        """See `Planner`; repeats are left alone."""
        likely = chances(self._calibration, drafts.confidences)
        others = other_chances(self._calibration, drafts, likely)
        best = max(options(likely, self._ahead, self._cost, 0.0, room, 0.0, others, rows_left=drafts.left), key=_worth)
        self._new = min(drafts.new, best.drafts)
        return best.plan(drafts.alternatives)

    def learn(self, drafted: int, accepted: int) -> None:
        """See `Planner`."""
        if not self._new:
            return
        self._outlook = outlook(self._outlook, self._new, accepted)
        self._learnt += 1
        if self._learnt % _REFRESH == 0:
            self._ahead = ahead(self._outlook)


def outlook(before: Sequence[float], drafted: int, accepted: int) -> list[float]:
    """The chances that the first 1, 2, ... drafts match, after a pass that accepted so many of those drafted."""
    news = [float(depth < accepted) for depth in range(drafted)]
    learnt = [_MEMORY * chance + (1.0 - _MEMORY) * seen for chance, seen in zip(before, news, strict=False)]
    return [*learnt, *before[len(learnt) :]]
