"""What the engine of a replica tells of itself: each pass and answer as it happens, its counts at a scrape."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family

from prove_core.engine.stats import EngineStats
from services.metrics import catalogue as declared
from services.metrics.metric import Kind, Metric
from services.metrics.registry import Registry

BUSY_WINDOW_S = 15.0


class EngineMetrics:
    """The metrics of one engine, and its `EngineObserver`. `stats` is asked on the exporter's thread."""

    def __init__(self, registry: Registry, stats: Callable[[], EngineStats]) -> None:
        self._stats = stats
        self._busy = BusyFraction(BUSY_WINDOW_S)
        self._pass_seconds = registry.histogram(declared.PASS_SECONDS)
        self._rows_per_pass = registry.histogram(declared.ROWS_PER_PASS)
        self._prefill_seconds = registry.histogram(declared.PREFILL_SECONDS)
        self._queue_wait_seconds = registry.histogram(declared.QUEUE_WAIT_SECONDS)
        registry.at_scrape(self._families)

    def passed(self, rows: int, seconds: float) -> None:
        """See `EngineObserver`."""
        self._pass_seconds.observe(seconds)
        self._rows_per_pass.observe(rows)

    def answered(self, queue_seconds: float, prefill_seconds: float | None) -> None:
        """See `EngineObserver`."""
        self._queue_wait_seconds.observe(queue_seconds)
        if prefill_seconds is not None:
            self._prefill_seconds.observe(prefill_seconds)

    def _families(self) -> Iterator[Family]:
        stats = self._stats()
        plain = {
            declared.PASSES: stats.passes,
            declared.ROWS_TOTAL: stats.rows,
            declared.BUSY_SECONDS: stats.busy_seconds,
            declared.BUSY_FRACTION: self._busy.read(time.monotonic(), stats.busy_seconds),
            declared.PREFIX_QUERIED: stats.prefix_queried_tokens,
            declared.PREFIX_HITS: stats.prefix_hit_tokens,
            declared.PREEMPTIONS: stats.preemptions,
            declared.KV_STARVED_SECONDS: stats.starved_seconds,
            declared.SESSIONS_OPEN: stats.sessions,
            declared.CONTROLLER_ROWS: stats.auto_mean_rows,
        }
        yield from (_family(metric, {(): value}) for metric, value in plain.items())
        held = stats.total_pages - stats.free_pages
        pages = {"free": stats.free_pages - stats.idle_pages, "held": held, "cached": stats.idle_pages}
        calls = {"running": stats.running_calls, "waiting": stats.waiting_calls - stats.running_calls}
        yield _by_label(declared.KV_PAGES, pages)
        yield _by_label(declared.SESSIONS, calls)
        yield _by_label(declared.CONTROLLER_CHOICES, {"ar": stats.auto_ar, "propose": stats.auto_proposing})


class BusyFraction:
    """The share of about the last `window_s` seconds in which a counter of busy seconds grew."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._readings: deque[tuple[float, float]] = deque([(time.monotonic(), 0.0)])

    def read(self, now: float, busy_seconds: float) -> float:
        """0 to 1. `now`: seconds on the monotonic clock."""
        readings = self._readings
        while len(readings) > 1 and readings[1][0] <= now - self._window_s:
            readings.popleft()
        readings.append((now, busy_seconds))
        since, before = readings[0]
        return min(1.0, max(0.0, (busy_seconds - before) / max(now - since, 1e-6)))


def _by_label(metric: Metric, values: Mapping[str, float]) -> Family:
    return _family(metric, {(label,): value for label, value in values.items()})


def _family(metric: Metric, values: Mapping[tuple[str, ...], float]) -> Family:
    kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
