"""The metrics of one replica: a prometheus registry of its own, whose samples carry the replica's labels."""

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from services.metrics.metric import Metric, Part

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who exports: the values of the constant labels."""

    role: Part
    replica: str
    model: str

    @property
    def labels(self) -> dict[str, str]:
        """As labels."""
        return {"role": self.role.value, "replica": self.replica, "model": self.model}


class Registry:
    """Makes declared metrics and collects them. Constant labels cost nothing until a scrape."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self._plain = CollectorRegistry(auto_describe=False)
        self.collector = CollectorRegistry(auto_describe=False)
        self.collector.register(_Labelled(self._plain, identity.labels))

    def counter(self, metric: Metric) -> Counter:
        """The counter that `metric` declares."""
        return Counter(metric.name, metric.help, metric.labels, registry=self._plain)

    def gauge(self, metric: Metric) -> Gauge:
        """The gauge that `metric` declares."""
        return Gauge(metric.name, metric.help, metric.labels, registry=self._plain)

    def histogram(self, metric: Metric) -> Histogram:
        """The histogram that `metric` declares."""
        return Histogram(metric.name, metric.help, metric.labels, registry=self._plain, buckets=metric.buckets)

    def at_scrape(self, collect: Callable[[], Iterable[Family]]) -> None:
        """Ask `collect` for families at each scrape, on the exporter's thread. If it raises, they are left out."""
        self._plain.register(_Asked(collect))


class _Asked(Collector):
    def __init__(self, collect: Callable[[], Iterable[Family]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Family]:
        """What cannot be told at the moment is left out; everything else is still told."""
        try:
            return list(self._collect())
        except Exception:
            logger.exception("some metrics are missing from a scrape")
            return []


class _Labelled(Collector):
    """The families of a registry with labels added to each sample, and without the `_created` ones."""

    def __init__(self, inner: CollectorRegistry, labels: dict[str, str]) -> None:
        self._inner = inner
        self._labels = labels

    def collect(self) -> Iterator[Family]:
        for family in self._inner.collect():
            family.samples = [self._with_labels(s) for s in family.samples if not s.name.endswith("_created")]
            yield family

    def _with_labels(self, sample: Sample) -> Sample:
        return sample._replace(labels={**self._labels, **sample.labels})
