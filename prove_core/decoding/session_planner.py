"""The planner of one completion in mode `auto`: of proposed and repeated drafts and placeholders, what pays."""

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter

from prove_core.decoding.ahead import NOTHING
from prove_core.decoding.calibration import chances, other_chances
from prove_core.decoding.controller import LOOK_EVERY, MEMORY, TRIAL, Company, Controller
from prove_core.decoding.cycle import AR_ONLY, Planner, fixed_planner
from prove_core.decoding.drafts import Drafts
from prove_core.decoding.experience import Experience
from prove_core.decoding.lookup import Repeat
from prove_core.decoding.plan import AR_PASS, Option, Plan, options
from prove_core.types import DecodingParams, Mode

DEPTH = 15  # drafts of a block that are looked at
EXPLORING_PRICE = 0.5  # of time, seen from AR's, in the first half of a trial: rows may be believed too dear
OWN_MEMORY = 0.95  # weight of the past per pass in a session's own experience
_MOST_OWN = 1.5
_LEAST = 0.03  # tokens that verifying a repeat must be worth, or it is not worth the planning
_NOTHING = Option(0.0, 0, ())
_worth = attrgetter("worth")


def planner_for(controller: Controller, params: DecodingParams, completions: Callable[[], int]) -> Planner:
    """For a new completion of the controller's engine; `completions` says how many share a pass, it included."""
    if params.mode is not Mode.AUTO:
        return fixed_planner(params, controller.calibration)
    if not controller.proposes or params.block_size < 2:
        return AR_ONLY
    depth = min(DEPTH, params.block_size - 1)
    controller.propose_to(depth)
    return SessionPlanner(controller, depth, completions)


class SessionPlanner:
    """Implements `Planner` for one completion, with at most `depth` drafts in one place.

    Its `_own` experience is of what drafts in hand were worth: a text suits the proposer more or less.
    """

    def __init__(self, controller: Controller, depth: int, completions: Callable[[], int]) -> None:
        self._controller = controller
        self._depth = depth
        self._completions = completions
        self._own = Experience(OWN_MEMORY)
        self._company: Company | None = None  # that the latest plan proposed in
        self._foreseen = 0.0  # tokens of the latest plan, if that counts as experience
        self._match = 0  # of the repeat at hand for the latest plan, if there was one
        self._repeats = False  # whether that plan verifies it

    def plan(self, drafts: Drafts, repeat: Repeat, room: int) -> Plan:
        """See `Planner`."""
        controller = self._controller
        company = controller.company(max(1, self._completions()))
        self._match = repeat.match
        again: list[float] = []
        if repeat.match and controller.repeats.first(repeat.match) > company.least:
            again = controller.repeats.chances(repeat)
        if company.proposing or drafts.tokens or controller.trying:
            plan = self._weigh(company, drafts, again, room)
        else:  # a full engine's passes: they must cost nothing
            self._company = None
            plan = self._repeated(company, again, room)
        controller.planned(plan)
        return plan

    def learn(self, drafted: int, accepted: int) -> None:
        """See `Planner`."""
        company, controller = self._company, self._controller
        if self._match:
            controller.repeats.learn(self._match, drafted if self._repeats else 0, accepted)
        if company is not None and self._foreseen:
            memory = MEMORY ** (1.0 / company.completions)
            company.experience.add(accepted + 1, self._foreseen * controller.surprise, memory)

    def _repeated(self, company: Company, again: list[float], room: int) -> Plan:
        """Without proposals: plain AR, or what the context repeats."""
        best = _NOTHING
        if again:
            best = max(options(again, NOTHING, self._controller.cost(company), company.price, room), key=_worth)
        company.repeating.add(best.worth, company.completions)
        self._repeats = best.worth > _LEAST
        return replace(best.plan(), repeats=True) if self._repeats else AR_PASS

    def _weigh(self, company: Company, drafts: Drafts, again: list[float], room: int) -> Plan:
        controller = self._controller
        trying, checking = bool(controller.trying), controller.checking
        proposes = trying or (company.proposing and not checking)
        in_use = drafts.tokens and not (company.proposing and checking)
        likely = chances(controller.calibration, drafts.confidences) if in_use else []
        others = other_chances(controller.calibration, drafts, likely) if in_use and drafts.alternatives else ()
        own = 1.0 if trying else min(self._own.ratio, _MOST_OWN)
        following = company.ahead if proposes else NOTHING
        exploring = controller.trying > TRIAL // 2
        price = EXPLORING_PRICE / company.cost.ar if exploring else company.price
        cost = controller.cost(company)
        least = price * company.cost.row
        fuses = not likely or controller.may_fuse(company)
        ahead = following if fuses else following.alone
        held = drafts.left if in_use else 0
        found = options(likely, ahead, cost, price, room, least, others, rows_left=held, share=own)
        if not fuses:
            found[:1] = options((), following, cost, price, room, least, rows_left=held, share=own)
        best = max(found, key=_worth)
        if likely:
            if fuses and proposes:
                company.fusing.add(float(bool(best.places)), company.completions)
            if drafts.new:
                controller.seen(likely[: drafts.new], [other for other in others if other.accepted < drafts.new])
                self._own.add(best.worth - found[0].worth, sum(company.forecast.promise[: len(likely)]))
        else:
            self._own.fade()
        if trying and not (best.drafts or best.places) and room > 2 and len(cost.rows) > 1:
            best = Option(best.worth, 0, (0,))
        again = [] if trying else again
        if controller.looking:
            alone = max(options(again, NOTHING, company.cost.alike, company.idle_price, room), key=_worth)
            company.repeating.add(alone.worth, company.completions / LOOK_EVERY)
        instead = _NOTHING
        if again and (not likely or again[0] > likely[0]):
            instead = max(
                options(again, ahead, cost, price, room, least, rows_left=held, share=own),
                key=_worth,
            )
        self._repeats = instead.drafts > 0 and instead.worth > best.worth
        steady = proposes and not exploring and self._company is company  # its drafts were planned like this
        self._foreseen = _foreseen(company, best) if steady and not self._repeats else 0.0
        self._company = company if proposes else None
        return replace(instead.plan(), repeats=True) if self._repeats else best.plan(drafts.alternatives)


def _foreseen(company: Company, option: Option) -> float:
    """Tokens forecast for the time of a pass in which all completions do so."""
    cost = company.cost.alike
    widest = len(cost.rows) - 1
    drafts = min(option.drafts + len(option.others), widest)
    seconds = cost.seconds(drafts, min(len(option.places), widest - drafts))
    return company.forecast.gain * (1.0 + seconds / company.cost.ar)
