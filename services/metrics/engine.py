"""What the engine of a proposer or verifier replica tells of itself: its own counts, read at each scrape."""

from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from prove_core.engine.engine import EngineStats
from services.metrics import catalogue as declared
from services.metrics.metric import Metric
from services.metrics.registry import Registry


class EngineMetrics:
    """The metrics of one engine; `stats` is asked on the exporter's thread."""

    def __init__(self, registry: Registry, stats: Callable[[], EngineStats]) -> None:
        self._stats = stats
        registry.at_scrape(self._families)

    def _families(self) -> Iterator[Family]:
        stats = self._stats()
        yield _counter(declared.PASSES, stats.passes)
        yield _counter(declared.ROWS_TOTAL, stats.rows)
        yield _counter(declared.BUSY_SECONDS, stats.busy_seconds)
        yield _counter(declared.PREEMPTIONS, stats.preemptions)
        yield _counter_by(declared.CONTROLLER_CHOICES, {"ar": stats.auto_ar, "propose": stats.auto_proposing})
        yield _gauge(declared.CONTROLLER_ROWS, stats.auto_mean_rows)
        yield _gauge(declared.SESSIONS_OPEN, stats.sessions)


def _counter(metric: Metric, value: float) -> Family:
    return CounterMetricFamily(metric.name, metric.help, value=value)


def _counter_by(metric: Metric, values: dict[str, float]) -> Family:
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
    for label, value in values.items():
        family.add_metric([label], value)
    return family


def _gauge(metric: Metric, value: float) -> Family:
    return GaugeMetricFamily(metric.name, metric.help, value=value)
