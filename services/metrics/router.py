"""The metrics of one Router. Whatever happens in it is counted on these, by whoever makes it happen."""

from prove_core.types import FinishReason, Mode
from services.metrics import catalogue as declared
from services.metrics.registry import Registry

CANCELLED, TIMEOUT, REJECTED, OVERLOADED, FAILED = "cancelled", "timeout", "rejected", "overloaded", "failed"
OUTCOMES = (*FinishReason, CANCELLED, TIMEOUT, REJECTED, OVERLOADED, FAILED)
UNKNOWN = "unknown"  # the mode of a request that was refused before it had one


class RouterMetrics:
    """Counters, gauges and histograms of `registry`; labels as the catalogue says."""

    def __init__(self, registry: Registry) -> None:
        self.outcomes = registry.counter(declared.REQUEST_OUTCOMES)
        self.running = registry.gauge(declared.REQUESTS_RUNNING)
        self.waiting = registry.gauge(declared.REQUESTS_WAITING)
        self.queued_tokens = registry.gauge(declared.QUEUED_TOKENS)
        self.prompt_tokens = registry.counter(declared.PROMPT_TOKENS)
        self.generation_tokens = registry.counter(declared.GENERATION_TOKENS)
        self.e2e_seconds = registry.histogram(declared.E2E_SECONDS)
        self.first_token_seconds = registry.histogram(declared.FIRST_TOKEN_SECONDS)
        self.inter_token_seconds = registry.histogram(declared.INTER_TOKEN_SECONDS)
        self.cycles = registry.counter(declared.CYCLES)
        self.committed_tokens = registry.counter(declared.COMMITTED_TOKENS)
        self.tokens_per_cycle = registry.histogram(declared.TOKENS_PER_CYCLE)
        self.cycle_seconds = registry.histogram(declared.CYCLE_SECONDS)
        self.drafts = registry.counter(declared.DRAFTS)
        self.draft_tokens = registry.counter(declared.DRAFT_TOKENS)
        self.accepted_tokens = registry.counter(declared.ACCEPTED_TOKENS)
        self.accepted_per_position = registry.counter(declared.ACCEPTED_PER_POSITION)
        self.recoveries = registry.counter(declared.RECOVERIES)
        self.recovery_seconds = registry.histogram(declared.RECOVERY_SECONDS)
        self.degraded_requests = registry.counter(declared.DEGRADED_REQUESTS)
        self.degraded = registry.gauge(declared.DEGRADED)
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Rates miss the first increment of a series that was not there before."""
        by_mode = (self.prompt_tokens, self.generation_tokens, self.cycles, self.committed_tokens)
        for counter in (*by_mode, self.drafts, self.draft_tokens, self.accepted_tokens):
            for mode in Mode:
                counter.labels(mode)
        for name in (*Mode, UNKNOWN):
            for outcome in OUTCOMES:
                self.outcomes.labels(name, outcome)
