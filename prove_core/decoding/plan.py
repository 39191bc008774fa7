"""What a pass of mode `auto` verifies and proposes: the rows that are expected to commit most per second. Pure.

An engine's passes are shared: what one completion adds, the others are taken to add too, so rows are priced at what
they cost all of them (`SharedCost`).

A draft is paid for twice, as a placeholder in one pass and as a token in the next, and commits in the next. Counting
both its promise and its arrival in one pass's tokens would count it double: in a steady state, where the drafts that a
pass verifies are as good as those it proposes, tokens per second are (1 + either) / seconds. So time has a price, the
tokens per second that a completion gets now. A pass is worth the drafts expected to match, plus the promise of what it
proposes less what verifying that will cost, less the price of its own seconds. Where every pass is planned so, the
tokens per second can only rise, and the price with them, until no other plans would give more (policy iteration for
the average reward of a decision process, up to the promise being an estimate). Plain AR is the plan without rows,
which is what is left where nothing pays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from operator import mul

from prove_core.decoding.cost import PassCost
from prove_core.decoding.fusion import gathered, stops
from prove_core.types import Branch

WORTH = 0.02  # expected tokens below which a row is not looked at
MOST = 64  # rows of one completion that are looked at
_FEW = 8  # rows over which the price of verifying a draft is averaged


@dataclass(frozen=True, slots=True)
class SharedCost:
    """Seconds of a pass by one completion's rows, when all completions that share it do the same.

    `rows[n]` with n rows each, `extra[m]` beyond that with m placeholders each; as many of both as may be planned.
    """

    rows: Sequence[float]
    extra: Sequence[float]

    def seconds(self, drafts: int, placeholders: int) -> float:
        """Of the pass: each completion has its last token, drafts behind it, and placeholders."""
        return self.rows[1 + drafts + placeholders] + self.extra[placeholders]

    @property
    def row(self) -> float:
        """Seconds that one more token row each adds, about: a mean over few rows."""
        last = min(_FEW, len(self.rows) - 1)
        return (self.rows[last] - self.rows[1]) / (last - 1) if last > 1 else 0.0


def shared_cost(cost: PassCost, completions: int, max_rows: int) -> SharedCost:
    """For so many completions and passes of at most `max_rows` rows."""
    most = max(1, min(MOST, max_rows // completions))
    windows = cost.window * (completions - 1)
    return SharedCost(
        [cost.of_rows(completions * rows) + windows for rows in range(most + 1)],
        [cost.of_placeholders(completions * rows) for rows in range(most)],
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """A pass of one completion: how many of its drafts to verify, and the branches to run, by ascending place."""

    drafts: int
    branches: tuple[Branch, ...]

    @property
    def placeholders(self) -> int:
        """Rows of all branches."""
        return sum(branch.placeholders for branch in self.branches)


AR_PASS = Plan(0, ())


def plan_pass(
    chances: Sequence[float], outlook: Sequence[float], cost: SharedCost, price: float, room: int, *, propose: bool
) -> Plan:
    """The plan of greatest worth at `price` tokens per second.

    `chances` are those of the drafts in hand, each given that those before it match. `room` is how many tokens may
    still be committed: a + 1 by this pass and one by the next anyway, so what it proposes can use the rest. Without
    `propose` drafts in hand are verified as far as that pays.
    """
    reach = [1.0, *accumulate(chances, mul)]
    promise = [*accumulate((survival - price * cost.row for survival in outlook), min)] if propose else []
    best, chosen = -inf, AR_PASS
    matched, widest = 0.0, len(cost.rows) - 1
    for drafts in range(min(len(chances), widest - 1) + 1):
        matched += reach[drafts]
        values = _values(stops(reach[1 : drafts + 1]), promise, room) if promise else []
        rows, gained, found = 0, matched, -1
        while 1 + drafts + rows <= widest:
            worth = gained - price * cost.seconds(drafts, rows)
            if worth > best:
                best, found = worth, rows
            if rows == len(values):
                break
            gained += values[rows][0]
            rows += 1
        if found >= 0:
            chosen = Plan(drafts, gathered(accepted for _, accepted in values[:found]))
    return chosen


def _values(chances: Sequence[float], promise: Sequence[float], room: int | None = None) -> list[tuple[float, int]]:
    """What each placeholder promises and the stop it is behind, best first. `promise` falls with depth."""
    values = [
        (value, accepted)
        for accepted, chance in enumerate(chances)
        if chance > WORTH
        for survival in (promise if room is None else promise[: max(0, room - accepted - 2)])
        if (value := chance * survival) > WORTH
    ]
    values.sort(reverse=True)
    return values
