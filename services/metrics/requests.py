"""What one request adds to a Router's metrics, as its user gets it."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from prometheus_client import Counter, Histogram

from prove_core.types import Cost, FinishReason, Mode, Step
from services.api.errors import ApiError, expected
from services.metrics.router import CANCELLED, FAILED, OUTCOMES, OVERLOADED, REJECTED, TIMEOUT, UNKNOWN, RouterMetrics

NOTHING = Cost()


def outcome_of(error: BaseException) -> str:
    """How a request has ended that ended with `error`."""
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return CANCELLED
    match expected(error):
        case ApiError(status=504):
            return TIMEOUT
        case ApiError(code="client_closed"):
            return CANCELLED
        case ApiError(status=429) | ApiError(code="overloaded"):
            return OVERLOADED
        case ApiError(status=status) if status < 500:
            return REJECTED
    return FAILED


def phases(cost: Cost) -> dict[str, float]:
    """Seconds of a cycle by phase. Phases that it did not have are left out."""
    spent = {
        "propose": cost.pass_seconds - cost.verify_seconds,
        "verify": cost.verify_seconds,
        "gate": cost.gate_seconds,
        "channel": cost.channel_seconds,
        "queue": cost.queue_seconds,
    }
    return {phase: seconds for phase, seconds in spent.items() if seconds > 0}


class CycleWatch(Protocol):
    """Told of each cycle once it has ended; times as `time.perf_counter` tells them."""

    def __call__(self, choice: int, tokens: int, cost: Cost, began: float, ended: float) -> None: ...


class ModeMetrics:
    """A Router's metrics of one mode: labels are looked up once, not once per token."""

    def __init__(self, metrics: RouterMetrics, mode: Mode) -> None:
        self.prompt_tokens = metrics.prompt_tokens.labels(mode)
        self.generation_tokens = metrics.generation_tokens.labels(mode)
        self.first_token_seconds = metrics.first_token_seconds.labels(mode)
        self.inter_token_seconds = metrics.inter_token_seconds.labels(mode)
        self.e2e_seconds = metrics.e2e_seconds.labels(mode)
        self.cycles = metrics.cycles.labels(mode)
        self.committed_tokens = metrics.committed_tokens.labels(mode)
        self.tokens_per_cycle = metrics.tokens_per_cycle.labels(mode)
        self.drafts = metrics.drafts.labels(mode)
        self.draft_tokens = metrics.draft_tokens.labels(mode)
        self.accepted_tokens = metrics.accepted_tokens.labels(mode)
        self.mode = mode
        self._all = metrics
        self._outcomes = {outcome: metrics.outcomes.labels(mode, outcome) for outcome in OUTCOMES}
        self._accepted_at: list[Counter] = []
        self._phases: dict[str, Histogram] = {}

    def drafted(self, candidates: int, accepted: int) -> None:
        """A draft of `candidates`, whose first `accepted` were committed."""
        self.drafts.inc()
        self.draft_tokens.inc(candidates)
        self.accepted_tokens.inc(accepted)
        for position in range(len(self._accepted_at), accepted):
            self._accepted_at.append(self._all.accepted_per_position.labels(self.mode, str(position)))
        for counter in self._accepted_at[:accepted]:
            counter.inc()

    def cycle(self, tokens: int, cost: Cost) -> None:
        """A cycle that committed `tokens`."""
        self.tokens_per_cycle.observe(tokens)
        for phase, seconds in phases(cost).items():
            self._phase(phase).observe(seconds)

    def _phase(self, phase: str) -> Histogram:
        if phase not in self._phases:
            self._phases[phase] = self._all.cycle_seconds.labels(self.mode, phase)
        return self._phases[phase]

    def ended(self, outcome: str) -> None:
        """A request has ended."""
        self._outcomes[outcome].inc()


class RequestMeter:
    """Measures one request from `arrived` (`time.perf_counter`) on."""

    def __init__(self, metrics: ModeMetrics, prompt_tokens: int, choices: int, arrived: float) -> None:
        self.metrics = metrics
        self.arrived = arrived
        self.choices = tuple(ChoiceMeter(self, index) for index in range(choices))
        self.watch: CycleWatch | None = None
        self.outcome: str | None = None
        self.prompt_tokens = prompt_tokens
        self.first_token_seconds: float | None = None
        self.seconds = 0.0
        self._answered = False

    def answered(self) -> None:
        """News of a choice: with the first, the prompt has been read."""
        if not self._answered:
            self._answered = True
            self.metrics.prompt_tokens.inc(self.prompt_tokens)

    def committed(self, now: float) -> None:
        """Tokens of a choice."""
        if self.first_token_seconds is None:
            self.first_token_seconds = now - self.arrived
            self.metrics.first_token_seconds.observe(self.first_token_seconds)

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Around the request's whole life: its outcome is how this block is left, unless all choices are complete."""
        try:
            yield
        except BaseException as error:
            self._end(outcome_of(error))
            raise
        self._end(FAILED)

    def _end(self, otherwise: str) -> None:
        self.seconds = time.perf_counter() - self.arrived
        reasons = {choice.reason for choice in self.choices}
        if None in reasons:
            self.outcome = otherwise
        else:
            self.outcome = FinishReason.LENGTH if FinishReason.LENGTH in reasons else FinishReason.STOP
            self.metrics.e2e_seconds.observe(self.seconds)
        self.metrics.ended(self.outcome)


class ChoiceMeter:
    """Measures one choice, given its steps as the user got them. Those with a cycle in their cost begin one."""

    def __init__(self, request: RequestMeter, index: int) -> None:
        self.reason: FinishReason | None = None
        self.tokens = 0
        self.cycles = 0
        self._request = request
        self._index = index
        self._cycle_began = self._latest = request.arrived
        self._cycle_cost = Cost()
        self._cycle_tokens = 0
        self._last_commit: float | None = None

    def add(self, step: Step) -> None:
        """Count one step."""
        metrics = self._request.metrics
        self._request.answered()
        if step.cost.cycles:
            self._end_cycle()
            self._count_cycles(step.cost)
        self._latest = time.perf_counter()
        self._cycle_cost += step.cost
        if step.drafted:
            metrics.drafted(step.drafted, step.accepted)
        if step.tokens:
            self._commit(len(step.tokens), self._latest)

    def ended(self, reason: FinishReason, cost: Cost = NOTHING) -> None:
        """The choice is complete; `cost` came after its last step."""
        self._request.answered()
        self.reason = reason
        self._end_cycle()
        self._count_cycles(cost)

    def _count_cycles(self, cost: Cost) -> None:
        self.cycles += cost.cycles
        self._request.metrics.cycles.inc(cost.cycles)

    def _commit(self, tokens: int, now: float) -> None:
        metrics = self._request.metrics
        metrics.generation_tokens.inc(tokens)
        metrics.committed_tokens.inc(tokens)
        self.tokens += tokens
        self._cycle_tokens += tokens
        self._request.committed(now)
        if self._last_commit is not None:
            each = (now - self._last_commit) / tokens
            for _ in range(tokens):
                metrics.inter_token_seconds.observe(each)
        self._last_commit = now

    def _end_cycle(self) -> None:
        if self._cycle_cost.cycles:
            self._request.metrics.cycle(self._cycle_tokens, self._cycle_cost)
            if self._request.watch is not None:
                self._request.watch(self._index, self._cycle_tokens, self._cycle_cost, self._cycle_began, self._latest)
        self._cycle_cost, self._cycle_tokens, self._cycle_began = Cost(), 0, self._latest


class RequestMetrics:
    """Makes the meters of one Router's requests."""

    def __init__(self, metrics: RouterMetrics) -> None:
        self._metrics = metrics
        self._modes: dict[Mode, ModeMetrics] = {}

    def request(self, mode: Mode, prompt_tokens: int, choices: int, arrived: float) -> RequestMeter:
        """A meter for a request that begins now and arrived at `arrived`."""
        if mode not in self._modes:
            self._modes[mode] = ModeMetrics(self._metrics, mode)
        return RequestMeter(self._modes[mode], prompt_tokens, choices, arrived)

    def refused(self, error: BaseException) -> None:
        """A request was refused with `error` before it began: that is an outcome too, of no known mode."""
        self._metrics.outcomes.labels(UNKNOWN, outcome_of(error)).inc()
