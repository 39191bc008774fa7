"""Mode `auto`: each pass gets the rows that pay, and none where plain AR is faster (design section 3).

A `Controller` belongs to an engine: it knows what passes cost, how well drafts do, and how many completions share a
pass. What is decided by it costs or saves time and changes no output.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from prove_core.decoding.ahead import Ahead, ahead
from prove_core.decoding.blocks import Blocks
from prove_core.decoding.cost import FREE, LiveCost, PassCost
from prove_core.decoding.experience import Experience, Mean
from prove_core.decoding.forecast import Forecast, forecast
from prove_core.decoding.lookup import Repeats
from prove_core.decoding.plan import AR_PASS, Other, Plan, RowCost, SharedCost, shared_cost
from prove_core.types import IDENTITY, Calibration

logger = logging.getLogger(__name__)

GAIN = 0.05  # by which proposing must be faster before it begins; it ends at break-even
TRIAL, WAIT = 8, 1024  # passes that propose even where AR seems faster, after so many that did not: it may have changed
FIRST_WAIT = 16  # for the first trial: of drafts nothing is known yet
MEMORY = 0.98  # weight of the past per pass in experience
CHECK_EVERY = 256  # of so many passes one is plain AR even where proposing seems faster, to see what it costs now
REFRESH = 64  # passes between looks at what costs and blocks have become; fewer at first
LOOK_EVERY = 8  # passes
_BETWEEN_MEMORY = 0.95
_SELDOM = 0.05  # share of plans
_NOTICE_EVERY_S = 10.0


@dataclass(slots=True)
class Choices:
    """What was planned so far: passes with and without drafts or placeholders, and rows of all of them."""

    ar: int = 0
    proposing: int = 0
    rows: int = 0


@dataclass(slots=True)
class _Turn:
    """What is planned for the next pass by now."""

    plans: int = 0
    proposing: int = 0
    tokens: int = 0
    placeholders: int = 0


@dataclass(slots=True)
class Company:
    """What is so where `completions` share a pass.

    `experience`: tokens committed, of those forecast. `repeating`: what verifying repeats alone adds to a token of
    plain AR. `fusing`: share of the plans with drafts in hand that proposed as well.
    """

    completions: int
    experience: Experience
    repeating: Mean
    cost: SharedCost
    forecast: Forecast
    ahead: Ahead
    proposing: bool
    fusing: Mean = field(default_factory=lambda: Mean(1.0))
    looks: int = 0
    until: int = 0

    @property
    def least(self) -> float:
        """Chance of a draft below which no row is worth it."""
        return self.cost.row / self.cost.ar

    @property
    def gain(self) -> float:
        """Times as fast as plain AR that proposing is, as far as is known."""
        return self.forecast.gain * self.experience.ratio

    @property
    def price(self) -> float:
        """Tokens per second that a completion gets now."""
        return max(self.idle_price, self.gain / self.cost.ar if self.proposing else 0.0)

    @property
    def idle_price(self) -> float:
        """Those without proposals: plain AR's, and what the context repeats."""
        return (1.0 + self.repeating.value) / self.cost.ar


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
        self.surprise = 1.0  # what the latest pass took, of what was expected
        self._cost = LiveCost(cost)
        self._between = 0.0
        self._max_rows = max_rows
        self._blocks = Blocks(1)
        self._companies: dict[int, Company] = {}
        self._experience: dict[int, Experience] = {}
        self._repeating: dict[int, Mean] = {}
        self.repeats = Repeats()
        self._turn = _Turn()
        self._passes = 0
        self._idle = WAIT - FIRST_WAIT  # passes without proposals
        self._latest: Company | None = None
        self.trying = 0  # passes left of a trial: all sessions propose at once, since first placeholders cost most
        self._share = _Share(clock)

    def propose_to(self, depth: int) -> None:
        """A completion comes whose blocks have up to so many drafts."""
        if depth > self._blocks.depth:
            self._blocks, self._latest = Blocks(depth), None
            self._companies.clear()

    def company(self, completions: int) -> Company:
        """What is so where that many share a pass, looked at every so many passes."""
        found = self._companies.get(completions)
        if found is None:
            found = self._companies[completions] = self._first_look(completions)
        elif self._passes >= found.until:
            found.cost = shared_cost(self._cost.cost, completions, self._max_rows, self._between)
            found.forecast = forecast(self._blocks.kept, found.cost, found.forecast)
            found.ahead = ahead(found.forecast.promise)
            self._decide(found)
        self._latest = found
        return found

    @property
    def checking(self) -> bool:
        """Whether no session shall propose now."""
        return self._passes % CHECK_EVERY == CHECK_EVERY - 1

    @property
    def looking(self) -> bool:
        """Whether plans shall look at what has seldom paid, or changes slowly."""
        return self._passes % LOOK_EVERY == 0

    def may_fuse(self, company: Company) -> bool:
        """Whether plans with drafts in hand shall look at proposing as well: seldom where that has seldom paid."""
        return self.looking or company.fusing.value > _SELDOM

    def cost(self, company: Company) -> RowCost:
        """Of the next pass, by what one more session of it plans."""
        turn = self._turn
        if 0 < turn.plans < company.completions:
            return company.cost.joined(turn.plans, turn.tokens, turn.placeholders)
        return company.cost.alike

    def turned(self) -> None:
        """A pass has run: what is planned now is for the next one."""
        turn, self._turn = self._turn, _Turn()
        self._passes += 1
        if not turn.plans:
            return
        self._share.add(turn.proposing / turn.plans)
        if self.trying:
            self.trying -= 1
        else:
            self._idle = 0 if turn.proposing else self._idle + 1
            if self._idle >= WAIT:
                self._try()

    def passed(self, tokens: int, placeholders: int, windows: int, seconds: float, between: float = 0.0) -> None:
        """Learn from a pass in which all rows had outputs, and from the seconds `between` the one before and it."""
        self.surprise = self._cost.follow(tokens, placeholders, windows, seconds)
        self._between += (1.0 - _BETWEEN_MEMORY) * (between - self._between)

    def seen(self, likely: Sequence[float], others: Sequence[Other]) -> None:
        """Learn from the chances of drafts in hand and of the tokens of alternatives to them."""
        self._blocks.add(likely, others)

    def planned(self, plan: Plan) -> None:
        """Count a plan."""
        turn, choices, tokens = self._turn, self.choices, plan.tokens
        turn.plans += 1
        turn.tokens += tokens
        choices.rows += tokens
        if plan is AR_PASS:
            choices.ar += 1
            return
        placeholders = plan.placeholders
        turn.proposing += bool(placeholders) or not plan.repeats
        turn.placeholders += placeholders
        choices.rows += placeholders
        choices.proposing += 1

    def _first_look(self, completions: int) -> Company:
        """With the forecast of the latest company to begin with."""
        cost = shared_cost(self._cost.cost, completions, self._max_rows, self._between)
        earlier = None if self._latest is None else self._latest.forecast
        alike = completions.bit_length()
        experience = self._experience.setdefault(alike, Experience(MEMORY))
        repeating = self._repeating.setdefault(alike, Mean())
        found = forecast(self._blocks.kept, cost, earlier)
        company = Company(completions, experience, repeating, cost, found, ahead(found.promise), proposing=False)
        self._decide(company)
        return company

    def _decide(self, company: Company) -> None:
        """Whether proposing is faster now: by some margin, if it is to begin."""
        least = 1.0 if company.proposing else 1.0 + GAIN
        if self._blocks.known:  # what proposing is worth is a guess until then
            least += company.repeating.value
        company.proposing = company.gain > least
        company.looks += 1
        company.until = self._passes + min(REFRESH, 2 << company.looks)

    def _try(self) -> None:
        """Begin a trial, and afterwards go by what it shows."""
        self.trying, self._idle = TRIAL, 0
        self._experience.clear()
        self._companies.clear()


class _Share:
    """What share of the latest plans proposed, and a line when that goes from most to few or back."""

    _WEIGHT = 1 / 64
    _FEW, _MANY = 0.3, 0.7

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._share = 1.0
        self._most = True
        self._noticed = -_NOTICE_EVERY_S

    def add(self, proposing: float) -> None:
        self._share += self._WEIGHT * (proposing - self._share)
        now = self._clock()
        turned = self._share < self._FEW if self._most else self._share > self._MANY
        if turned and now - self._noticed >= _NOTICE_EVERY_S:
            self._noticed, self._most = now, not self._most
            logger.info("mode auto: most passes now %s", "propose" if self._most else "are plain AR: it is faster")
