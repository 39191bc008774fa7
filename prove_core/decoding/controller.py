"""Mode `auto`: each pass gets the rows that pay, and none where plain AR is faster (design section 3).

A `Controller` belongs to an engine: it knows what passes cost, how well drafts do, and how many completions share a
pass. A `SessionPlanner` plans the passes of one completion. What they decide costs or saves time and changes no output.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

from prove_core.decoding.calibration import chances
from prove_core.decoding.cost import FREE, LiveCost, PassCost
from prove_core.decoding.cycle import AR_ONLY, Planner
from prove_core.decoding.experience import Experience
from prove_core.decoding.fusion import no_drafts, observed
from prove_core.decoding.plan import AR_PASS, Plan, SharedCost, plan_pass, shared_cost
from prove_core.types import IDENTITY, Calibration

logger = logging.getLogger(__name__)

GAIN = 0.05  # by which proposing must be faster before a session takes to it; it leaves at break-even
OWN_MEMORY, SHARED_MEMORY = 0.97, 0.99  # weight of the past per pass, in outlooks and experience
TRIAL = 12  # passes that propose even where AR seems faster, to see if it still is: the first ones, and then again ...
FIRST_WAIT, LAST_WAIT = 64, 1024  # ... after so many passes without proposals, twice as many each time
TRIAL_MEMORY = 0.9  # of experience in a trial, which shall tell what is so now
EXPLORING_PRICE = 0.25  # of time, seen from AR's, in the first half of a trial: rows may be believed too dear
CHECK_EVERY = 128  # of so many passes one is plain AR even where proposing seems faster, to see what it costs now
_REFRESH = 16  # passes between looks at the corrected costs
_NOTICE_EVERY_S = 10.0


@dataclass(slots=True)
class Choices:
    """What was planned so far: passes with and without drafts or placeholders, and rows of all of them."""

    ar: int = 0
    proposing: int = 0
    rows: int = 0


class Controller:
    """What the sessions of one engine have in common. Belongs to the engine's thread.

    `cost` is that of passes of at most `max_rows` rows. Not `proposes`: the checkpoint has no placeholder.
    """

    def __init__(
        self,
        cost: PassCost = FREE,
        calibration: Calibration = IDENTITY,
        *,
        max_rows: int,
        proposes: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.calibration = calibration
        self.proposes = proposes
        self.choices = Choices()
        self._cost = LiveCost(cost)
        self._max_rows = max_rows
        self._clock = clock
        self._passes = 0
        self._until_trial, self._wait = 0, FIRST_WAIT
        self._tables: dict[int, SharedCost] = {}
        self._outlook: tuple[float, ...] = ()
        self._experience: dict[int, Experience] = {}
        self._share = _Share(clock)

    @property
    def trying(self) -> bool:
        """Whether all sessions shall propose now: all at once, since the first placeholders of a pass cost most."""
        return self._until_trial <= 0

    @property
    def exploring(self) -> bool:
        """Whether that is to learn what rows cost and drafts do: the first half of a trial."""
        return self.trying and self._until_trial > -TRIAL // 2

    @property
    def checking(self) -> bool:
        """Whether no session shall propose now."""
        return self._passes % CHECK_EVERY == CHECK_EVERY - 1

    def planner(self, block_size: int, completions: Callable[[], int]) -> Planner:
        """For a new completion; `completions` says how many share a pass, it included."""
        return SessionPlanner(self, block_size, completions) if self.proposes else AR_ONLY

    def cost(self, completions: int) -> SharedCost:
        """Seconds of a pass by what each of so many completions adds."""
        table = self._tables.get(completions)
        if table is None:
            table = self._tables[completions] = shared_cost(self._cost.cost, completions, self._max_rows)
        return table

    def experience(self, completions: int) -> Experience:
        """What proposing has come to when about so many completions share a pass: within a factor of two."""
        found = self._experience.get(completions.bit_length())
        if found is None:
            found = self._experience[completions.bit_length()] = Experience(SHARED_MEMORY)
        return found

    def passed(self, tokens: int, placeholders: int, windows: int, seconds: float) -> None:
        """Learn from a pass in which all rows had outputs."""
        self._passes += 1
        self._until_trial -= 1
        if self._until_trial <= -TRIAL:
            self._until_trial, self._wait = self._wait, min(2 * self._wait, LAST_WAIT)
        self._cost.follow(tokens, placeholders, windows, seconds)
        if self._passes % _REFRESH == 0:
            self._tables.clear()

    def outlook(self, depth: int) -> tuple[float, ...]:
        """How blocks of `depth` drafts have matched lately in this engine."""
        if depth > len(self._outlook):
            self._outlook += no_drafts(depth + 1).outlook[len(self._outlook) :]
        return self._outlook[:depth]

    def observed(self, drafted: int, accepted: int, unread: list[float]) -> None:
        """Learn from verified drafts."""
        self._outlook = _falling(observed(self._outlook, drafted, accepted, unread, memory=SHARED_MEMORY))

    def planned(self, plan: Plan) -> None:
        """Count a plan, and say so when most sessions have changed their mind."""
        rows = plan.drafts + plan.placeholders
        self.choices.rows += 1 + rows
        if rows:
            self.choices.proposing += 1
        else:
            self.choices.ar += 1
        self._share.add(bool(rows))
        if plan.branches and not self.trying:
            self._until_trial = self._wait


class SessionPlanner:
    """Implements `Planner` for one completion.

    It has an outlook and experience of its own, which begin as the engine's. For the choice between plain AR and
    proposing both count alike: a text suits the proposer more or less, but its own few passes say so with much noise.
    """

    def __init__(self, controller: Controller, block_size: int, completions: Callable[[], int]) -> None:
        self._controller = controller
        self._completions = completions
        self._outlook = controller.outlook(block_size - 1)
        self._fresh = no_drafts(block_size).outlook
        self._shared: Experience | None = None
        self._own = Experience(OWN_MEMORY)
        self._proposing = True
        self._unread: list[float] = []
        self._memory = 1.0
        self._spent: float | None = None  # cost of the latest plan in AR passes, if it counts

    def plan(self, confidences: tuple[float, ...], room: int) -> Plan:
        """See `Planner`."""
        completions = max(1, self._completions())
        self._recall(completions)
        gain = self._choose()
        trying = self._controller.trying
        if not (confidences or trying or self._proposing):  # most passes of a full engine: they must cost nothing
            self._unread, self._memory, self._spent = [], 1.0, None
            self._controller.planned(AR_PASS)
            return AR_PASS
        cost = self._controller.cost(completions)
        ar = cost.seconds(0, 0)
        outlook = [*map(max, self._outlook, self._fresh)] if trying else self._outlook
        likely = chances(self._controller.calibration, confidences)
        propose = trying or (self._proposing and not self._controller.checking)
        if self._proposing and not propose:
            likely = []
        exploring = self._controller.exploring
        price = (EXPLORING_PRICE if exploring else 1.0 if trying else max(1.0, gain)) / ar
        plan = plan_pass(likely, outlook, cost, price, room, propose=propose)
        self._unread = likely[plan.drafts :]
        self._memory = TRIAL_MEMORY if trying else 1.0
        self._spent = cost.seconds(plan.drafts, plan.placeholders) / ar if propose and not exploring else None
        self._controller.planned(plan)
        return plan

    def learn(self, drafted: int, accepted: int) -> None:
        """See `Planner`."""
        if not drafted and not self._unread and self._spent is None:  # plain AR teaches nothing about drafts
            return
        self._outlook = _falling(observed(self._outlook, drafted, accepted, self._unread, memory=OWN_MEMORY))
        self._controller.observed(drafted, accepted, self._unread)
        if self._spent is not None and self._shared is not None:
            self._own.add(accepted + 1, self._spent, self._memory)
            self._shared.add(accepted + 1, self._spent, self._memory)

    def _recall(self, completions: int) -> None:
        """Experience is that of the present company: with more or fewer sharing a pass it is another one."""
        shared = self._controller.experience(completions)
        if shared is not self._shared:
            self._shared, self._own = shared, shared.copy(OWN_MEMORY)

    def _choose(self) -> float:
        """Change the choice if the other one is faster, by some margin if it is proposing; answers that one's gain."""
        gain = self._own.gain if self._shared is None else (self._own.gain + self._shared.gain) / 2
        if self._proposing and gain < 1.0:
            self._proposing = False
        elif not self._proposing and gain > 1.0 + GAIN:
            self._proposing = True
        return gain


class _Share:
    """How many of the latest plans proposed, and a line when that goes from most to few or back."""

    _WEIGHT = 1 / 64
    _FEW, _MANY = 0.3, 0.7

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._share = 1.0
        self._most = True
        self._noticed = -_NOTICE_EVERY_S

    def add(self, proposing: bool) -> None:
        self._share += self._WEIGHT * (proposing - self._share)
        now = self._clock()
        turned = self._share < self._FEW if self._most else self._share > self._MANY
        if turned and now - self._noticed >= _NOTICE_EVERY_S:
            self._noticed, self._most = now, not self._most
            logger.info("mode auto: most passes now %s", "propose" if self._most else "are plain AR: it is faster")


def _falling(outlook: tuple[float, ...]) -> tuple[float, ...]:
    """A block's longer prefixes match no more often than shorter ones."""
    return tuple(accumulate(outlook, min))
