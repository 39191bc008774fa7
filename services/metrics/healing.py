"""What the healing of a Router's sessions is counted on."""

from prove_core.types import Role
from services.channel.errors import Loss
from services.metrics.router import RouterMetrics


class HealingMetrics:
    """Told of what a Router's sessions go through."""

    def __init__(self, metrics: RouterMetrics) -> None:
        self._metrics = metrics
        for role in Role:  # rates miss the first increment of a series that was not there before
            metrics.recovery_seconds.labels(role.value)
            for loss in Loss:
                metrics.recoveries.labels(role.value, loss.value)

    def recovered(self, role: Role, loss: Loss, seconds: float) -> None:
        """A session has a place again, `seconds` after it lost one."""
        self._metrics.recoveries.labels(role.value, loss.value).inc()
        self._metrics.recovery_seconds.labels(role.value).observe(seconds)

    def missing(self, missing: bool) -> None:
        """Requests begin to do without a verifier, or no longer."""
        self._metrics.degraded.set(missing)

    def degraded_request(self) -> None:
        """One request goes on without the verifier that it asked for."""
        self._metrics.degraded_requests.inc()
