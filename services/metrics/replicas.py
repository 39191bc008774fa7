"""How many replicas of each part are running, as Serve's controller knows them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily

from services.metrics import catalogue as declared
from services.metrics.metric import Part
from services.metrics.registry import Registry


class ReplicaMetrics:
    """The gauge of replicas; `running`, by deployment name, is asked at each scrape, on the exporter's thread."""

    def __init__(self, registry: Registry, running: Callable[[], Mapping[str, Sequence[Any]]]) -> None:
        self._running = running
        registry.at_scrape(self._families)

    def _families(self) -> Iterator[GaugeMetricFamily]:
        metric = declared.REPLICAS
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        for name, replicas in self._running().items():  # deployments that have none are there too
            family.add_metric([Part(name.lower()).value], len(replicas))
        yield family
