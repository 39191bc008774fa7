"""Settings of what can be seen from outside, and what of them every replica must know."""

from pydantic import Field

from prove_core.config import Frozen
from services.telemetry.settings import LoggingSettings


class MetricsSettings(Frozen):
    """What Prometheus may read."""

    enabled: bool = Field(
        default=True,
        description="Each replica serves its own on a free port of its node; `/metrics/targets` lists them all.",
    )


class Observed(Frozen):
    """What a replica needs to tell about itself. `model`: the served name."""

    model: str
    metrics: MetricsSettings = MetricsSettings()
    logging: LoggingSettings = LoggingSettings()
