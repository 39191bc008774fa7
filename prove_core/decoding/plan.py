"""What a pass of mode `auto` verifies and proposes: the rows that are expected to commit most per second. Pure.

An engine's passes are shared: what one completion adds, the others are taken to add too, so rows are priced at what
they cost all of them (`SharedCost`); where some have planned the same pass already, what they add is known.

A draft is paid for twice, as a placeholder in one pass and as a token in the next, and commits in the next. So a pass
is worth the drafts expected to match, plus the value of those that it proposes, less the price of its own seconds:
the tokens per second that a completion gets now. What drafts in hand are worth, verified as well as can be, is the
`promise`, which `forecast` finds for a steady state: together a decision process with an average reward. Plain AR is
the plan without rows, which is what is left where nothing pays.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from prove_core.decoding.ahead import Ahead
from prove_core.decoding.cost import PassCost
from prove_core.decoding.drafts import beginnings
from prove_core.types import Alternatives, Branch

WORTH = 0.01  # expected tokens below which a row is not looked at
MOST = 64  # rows of one completion that are looked at


@dataclass(frozen=True, slots=True)
class RowCost:
    """Seconds that a completion's rows cost all who share a pass, beyond those of plain AR.

    `rows[n]` for n rows of its own besides its last token, `extra[m]` besides for m of them being placeholders, both
    less what the first of the list says, times `scale`. As many rows as it may have.
    """

    rows: Sequence[float]
    extra: Sequence[float]
    scale: float

    def seconds(self, drafts: int, placeholders: int) -> float:
        """With so many drafts behind its last token, and placeholders."""
        rows, extra = self.rows, self.extra
        return self.scale * (rows[drafts + placeholders] - rows[0] + extra[placeholders] - extra[0])


@dataclass(frozen=True)
class SharedCost:
    """Of passes that `completions` share.

    `rows[n]` are the seconds of a pass of n rows in as many windows, `extra[m]` what m placeholders cost beyond that;
    as many as a pass may have.
    """

    rows: Sequence[float]
    extra: Sequence[float]
    completions: int

    @cached_property
    def ar(self) -> float:
        """Seconds of a pass of plain AR."""
        return self.rows[min(self.completions, len(self.rows) - 1)]

    @cached_property
    def alike(self) -> RowCost:
        """Of one completion's rows, if all the others have as many."""
        return self.joined(0, 0, 0)

    @cached_property
    def row(self) -> float:
        """Seconds that one more row each adds where that is least."""
        return min((after - before for before, after in pairwise(self.alike.rows)), default=0.0)

    def joined(self, planned: int, tokens: int, placeholders: int) -> RowCost:
        """The same for a pass in which `planned` completions, not all, have so many tokens and placeholders together.

        The others are taken to do as the one that plans. What they add is shared by fewer, so it counts for more.
        """
        left = self.completions - planned
        begin = min(tokens + placeholders + left, len(self.rows) - 1)
        rows = self.rows[begin::left][: MOST + 1]
        extra = self.extra[min(placeholders, len(self.extra) - 1) :: left][: len(rows)]
        return RowCost(rows, extra, self.completions / left)


def shared_cost(cost: PassCost, completions: int, max_rows: int, between: float = 0.0) -> SharedCost:
    """For so many completions and passes of at most `max_rows` rows, with `between` seconds from one to the next."""
    fixed = cost.window * (completions - 1) + between
    return SharedCost(
        [seconds + fixed for seconds in cost.by_rows(max_rows)], cost.by_placeholders(max_rows), completions
    )


@dataclass(frozen=True, slots=True)
class Plan:
    """A pass of one completion: how many of its drafts to verify, and the branches to run, by ascending place.

    `repeats`: the drafts are those that the context repeats, not those that were proposed. `alternatives` to them are
    verified too.
    """

    drafts: int
    branches: tuple[Branch, ...]
    repeats: bool = False
    alternatives: Alternatives = ()

    @property
    def tokens(self) -> int:
        """Rows of tokens, the completion's last one included."""
        return 1 + self.drafts + sum(len(other.tokens) for other in self.alternatives)

    @property
    def placeholders(self) -> int:
        """Rows of all branches."""
        return sum(branch.placeholders for branch in self.branches)


AR_PASS = Plan(0, ())


class Other(NamedTuple):
    """A token of an alternative, named by its place in the list of them.

    `chance` is that it comes true, and so those before it in the alternative, where the first `accepted` drafts match.
    """

    accepted: int
    chance: float
    alternative: int


class Option(NamedTuple):
    """The best that a pass can do which verifies `drafts`: its worth, and what each of its other rows is for.

    The stop that each placeholder is behind; the alternative that each further token is of. Worth counts tokens beyond
    the one of plain AR, less what seconds beyond those of plain AR cost.
    """

    worth: float
    drafts: int
    places: tuple[int, ...]
    others: tuple[int, ...] = ()

    def plan(self, alternatives: Alternatives = ()) -> Plan:
        """As a plan, for drafts with these alternatives."""
        if not self.drafts and not self.places:
            return AR_PASS
        verified = beginnings(alternatives, Counter(self.others)) if self.others else ()
        return Plan(self.drafts, _gathered(self.places), alternatives=verified)


def options(
    chances: Sequence[float],
    ahead: Ahead,
    cost: RowCost,
    price: float,
    room: int,
    least: float = 0.0,
    others: Sequence[Other] = (),
    *,
    rows_left: int = 0,
    share: float = 1.0,
) -> list[Option]:
    """By number of drafts verified, from none, the best plan at `price` tokens per second.

    `chances` are those of the drafts, each given that those before it match; `others` the tokens of alternatives, of
    which those in the place of a verified draft may be verified too. `share` of what is promised `ahead` counts.
    `rows_left` say something of the places from the first draft's on, whatever is verified there. `room` is how many
    tokens may still be committed: a + 1 by this pass and one by the next anyway, so what it proposes can use the rest.
    Placeholders worth `least` tokens or less are not looked at.
    """
    least = max(least, WORTH)
    rows, extra, price = cost.rows, cost.extra, price * cost.scale
    free, reach, matched = price * (rows[0] + extra[0]), 1.0, 0.0
    sooner: list[tuple[float, int]] = []  # placeholders behind stops before the last draft, best first
    beside: list[tuple[float, Other]] = []  # tokens of alternatives to the drafts so far, best first
    later = 0.0  # what is left behind those stops is worth
    found = []
    for drafts in range(min(len(chances) + 1, len(rows))):
        left = rows_left - drafts - 1
        gained, tokens = matched + free + later + reach * share * ahead.worth(left), drafts
        best = gained - price * (rows[drafts] + extra[0])
        for index, (value, _) in enumerate(beside[: len(rows) - 1 - drafts], start=1):
            gained += value
            worth = gained - price * (rows[drafts + index] + extra[0])
            if worth > best:
                best, tokens = worth, drafts + index
        verified = beside[: tokens - drafts]
        values = [*sooner, *_behind(drafts, reach * share, ahead.placeholders(left), room, least)]
        values.sort(key=_value, reverse=True)
        gained, count = best + price * (rows[tokens] + extra[0]), 0
        for index, (value, _) in enumerate(values[: len(rows) - 1 - tokens], start=1):
            gained += value
            worth = gained - price * (rows[tokens + index] + extra[index])
            if worth > best:
                best, count = worth, index
        places = tuple([place for _, place in values[:count]])
        found.append(Option(best, drafts, places, tuple([other.alternative for _, other in verified])))
        if drafts < len(chances):
            further = reach * chances[drafts]
            if further < WORTH:
                break
            if others:
                beside += [(reach * other.chance, other) for other in others if other.accepted == drafts]
                beside.sort(key=_value, reverse=True)
            stop = (reach - further) * share
            sooner += _behind(drafts, stop, ahead.placeholders(left), room, least)
            later += stop * ahead.worth(left)
            reach = further
            matched += reach
    return found


_value = itemgetter(0)


def _behind(place: int, chance: float, more: Sequence[float], room: int, least: float) -> list[tuple[float, int]]:
    """What each placeholder behind a stop of that chance promises, and the stop."""
    return [(chance * value, place) for value in more[: max(0, room - place - 2)] if chance * value > least]


def _gathered(places: Iterable[int]) -> tuple[Branch, ...]:
    """The branches that put a placeholder behind each stop named, by ascending place."""
    return tuple(Branch(accepted, count) for accepted, count in sorted(Counter(places).items()))
