"""The declarations: names as Prometheus wants them, and a page that lists them all."""

import re
from collections import Counter

import pytest

from services.metrics.catalogue import CATALOGUE
from services.metrics.document import PAGE, filled
from services.metrics.metric import CONSTANT_LABELS, Kind, Metric


def test_each_series_has_one_declaration() -> None:
    names = Counter(sample for metric in CATALOGUE for sample in metric.samples)
    assert max(names.values()) == 1


@pytest.mark.parametrize("metric", CATALOGUE, ids=lambda metric: metric.name)
def test_declarations_follow_prometheus_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"prove:[a-z0-9_]+", metric.name)
    assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
    assert not set(metric.labels) & {*CONSTANT_LABELS, "le", "instance", "job"}
    assert metric.help.endswith(".")
    assert (metric.kind is Kind.HISTOGRAM) == bool(metric.buckets)
    assert list(metric.buckets) == sorted(set(metric.buckets))


def test_the_page_lists_them_all() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "write it anew: python -m services.metrics.document"
