"""Dashboards and rules name declared metrics only, with labels and buckets that these have."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.generate import HERE, VARIABLES, expand, sources
from services.metrics.catalogue import CATALOGUE
from services.metrics.metric import Kind, Metric
from tests.dashboards.promql import Named, grouped, legend_labels, recorded, series

RULES = HERE / "prometheus"
BY_SERIES = {name: metric for metric in CATALOGUE for name in metric.samples}
SCRAPED = {"job", "instance"}  # labels of `up`


def _rules(name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((RULES / name).read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def _panels() -> list[tuple[str, str, str]]:
    """(where, legend, query) of every query of every dashboard."""
    found = []
    for path in sources():
        for row in yaml.safe_load(path.read_text())["rows"]:
            for panel in row["panels"]:
                found += [(f"{path.stem}: {panel['title']}", *item) for item in panel["queries"].items()]
    return found


EXPRESSIONS = [
    *((where, expand(query)) for where, _, query in _panels()),
    *((f"variable {name}", query) for name, (_, query) in VARIABLES.items()),
    *((rule.get("record") or rule["alert"], rule["expr"]) for rule in _rules("recording.yml") + _rules("alerts.yml")),
]
EXPRESSION = pytest.mark.parametrize("expression", [e for _, e in EXPRESSIONS], ids=[where for where, _ in EXPRESSIONS])


def _labels(metric: Metric) -> set[str]:
    return {*metric.label_names} | ({"le"} if metric.kind is Kind.HISTOGRAM else set())


def _check_bucket(named: Named) -> None:
    if "le" in named.matchers:
        assert float(named.matchers["le"]) in BY_SERIES[named.name].buckets, named


@EXPRESSION
def test_metrics_are_declared_and_have_these_labels(expression: str) -> None:
    for named in series(expression):
        assert named.name in BY_SERIES, f"{named.name} is not declared"
        assert named.matchers.keys() <= _labels(BY_SERIES[named.name]), named
        _check_bucket(named)


@EXPRESSION
def test_grouping_is_by_labels_that_the_metrics_have(expression: str) -> None:
    found = series(expression)
    if found and "up{" not in expression:
        assert grouped(expression) <= set().union(*(_labels(BY_SERIES[named.name]) for named in found))


@EXPRESSION
def test_counters_and_histograms_are_read_as_rates_and_gauges_as_they_are(expression: str) -> None:
    for named in series(expression):
        metric = BY_SERIES[named.name]
        rated = any(f"{function}({named.name}" in expression for function in ("rate", "increase"))
        if "label_values" not in expression:
            assert rated == (metric.kind is not Kind.GAUGE), named


def test_recorded_series_are_recorded() -> None:
    names = {rule["record"] for rule in _rules("recording.yml")}
    used = set().union(*(recorded(expression) for _, expression in EXPRESSIONS))
    assert used <= names


@pytest.mark.parametrize(("where", "legend", "query"), _panels())
def test_legends_show_labels_that_the_query_keeps(where: str, legend: str, query: str) -> None:
    shown, expression = legend_labels(legend), expand(query)
    kept = grouped(expression)
    if "by (" not in expression:
        kept = set().union(SCRAPED, *(_labels(BY_SERIES[n.name]) for n in series(expression)), {"role", "replica"})
    assert shown <= kept


def test_every_metric_is_on_some_dashboard() -> None:
    shown = {named.name for _, _, query in _panels() for named in series(expand(query))}
    missing = [metric.name for metric in CATALOGUE if not shown & set(metric.samples)]
    assert missing == []


def test_names_of_files() -> None:
    assert [Path(path).stem for path in sources()] == ["decoding", "overview", "replicas"]
