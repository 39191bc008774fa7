"""Placement groups of the application's replicas, as Ray knows them: more of them than replicas are left over."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.core import GaugeMetricFamily

from services.metrics import catalogue as declared
from services.metrics.metric import Part
from services.metrics.registry import Registry

Table = Mapping[str, Mapping[str, Any]]  # by id, as `ray.util.placement_group_table` returns it

_NAME = re.compile(r"SERVE_REPLICA::(?P<application>[^#]*)#(?P<deployment>[^#]*)#[^#]*")  # Serve's, of a replica


def live_groups(table: Table, application: str) -> dict[str, int]:
    """How many placement groups the replicas of each part of the application have."""
    counts = dict.fromkeys(Part, 0)
    for group in table.values():
        named = _NAME.fullmatch(group["name"])
        if named and named["application"] == application and group["state"] != "REMOVED":
            counts[Part(named["deployment"].lower())] += 1
    return {part.value: count for part, count in counts.items()}


class PlacementMetrics:
    """The gauge of placement groups; `table` is asked at each scrape, on the exporter's thread."""

    def __init__(self, registry: Registry, application: str, table: Callable[[], Table]) -> None:
        self._application = application
        self._table = table
        registry.at_scrape(self._families)

    def _families(self) -> Iterator[GaugeMetricFamily]:
        metric = declared.PLACEMENT_GROUPS
        family = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        for part, count in live_groups(self._table(), self._application).items():
            family.add_metric([part], count)
        yield family
