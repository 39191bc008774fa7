"""What PromQL expressions name: metrics with their label matchers, recorded series, and labels they group by."""

import re
from dataclasses import dataclass

METRIC = re.compile(r"(?<![\w:])(prove:\w+)(?:\{([^}]*)\})?")
RECORDED = re.compile(r"(?<![\w:])(\w+:prove_\w+:\w+)")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
GROUPED = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Named:
    """One time series as an expression names it."""

    name: str
    matchers: dict[str, str]


def series(expression: str) -> list[Named]:
    """The project's metrics in `expression`."""
    return [Named(found[1], dict(MATCHER.findall(found[2] or ""))) for found in METRIC.finditer(expression)]


def recorded(expression: str) -> set[str]:
    """Names of recording rules in `expression`."""
    return set(RECORDED.findall(expression))


def grouped(expression: str) -> set[str]:
    """Labels that `expression` groups by or matches on."""
    return {label.strip() for labels in GROUPED.findall(expression) for label in labels.split(",") if label.strip()}


def legend_labels(legend: str) -> set[str]:
    """Labels in a legend."""
    return set(LEGEND.findall(legend))
