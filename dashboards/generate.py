"""Grafana dashboards from `panels/*.yaml`: `python -m dashboards.generate` writes `grafana/*.json`.

A panel is a title, a description, a unit, a kind and its queries (legend: PromQL). In queries `@request`, `@router`
and `@replica` stand for the label matchers of the dashboard's variables.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
SOURCES = HERE / "panels"
TARGET = HERE / "grafana"

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
MATCHERS = {
    "@request": 'model=~"$model",mode=~"$mode"',
    "@router": 'model=~"$model"',
    "@replica": 'model=~"$model",role=~"$role",replica=~"$replica"',
}
WIDTH = 24  # of Grafana's grid
ROW_HEIGHT = 1
HEIGHTS = {"stat": 4, "timeseries": 8, "bargauge": 8, "heatmap": 8}
TIMESERIES = {
    "lineWidth": 1,
    "fillOpacity": 10,
    "showPoints": "never",
    "spanNulls": False,
}

Json = dict[str, Any]


def dashboard(source: Json) -> Json:
    """The Grafana dashboard that a source file describes."""
    return {
        "uid": source["uid"],
        "title": source["title"],
        "description": source["description"],
        "tags": ["prove"],
        "schemaVersion": 39,
        "editable": False,
        "graphTooltip": 1,  # one crosshair for all panels
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": [_links()],
        "templating": {"list": [_datasource(), *(_variable(name) for name in source["variables"])]},
        "panels": list(_panels(source["rows"])),
    }


def expand(query: str) -> str:
    """A source's query as Grafana takes it."""
    for name, matchers in MATCHERS.items():
        query = query.replace(name, matchers)
    return " ".join(query.split())


def queries(source: Json) -> Iterator[str]:
    """Every query of a source, expanded."""
    for row in source["rows"]:
        for panel in row["panels"]:
            yield from map(expand, panel["queries"].values())


def sources() -> list[Path]:
    """The files that dashboards are made of."""
    return sorted(SOURCES.glob("*.yaml"))


def text(path: Path) -> str:
    """The JSON file of one source."""
    source = yaml.safe_load(path.read_text(encoding="utf-8"))
    return json.dumps(dashboard(source), indent=1) + "\n"


def _links() -> Json:
    return {
        "type": "dashboards",
        "tags": ["prove"],
        "title": "ProVe",
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "icon": "dashboard",
        "targetBlank": False,
    }


def _datasource() -> Json:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


VARIABLES = {
    "model": ("Model", "label_values(prove:requests_running, model)"),
    "mode": ("Mode", "label_values(prove:request_outcomes_total, mode)"),
    "role": ("Role", "label_values(prove:passes_total, role)"),
    "replica": ("Replica", 'label_values(prove:passes_total{role=~"$role"}, replica)'),
}


def _variable(name: str) -> Json:
    label, query = VARIABLES[name]
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,  # whenever the time range changes: replicas come and go
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "sort": 1,
    }


def _panels(rows: list[Json]) -> Iterator[Json]:
    y, number = 0, 0
    for row in rows:
        number += 1
        yield _row(number, row["title"], y)
        y += ROW_HEIGHT
        x, height = 0, 0
        for panel in row["panels"]:
            number += 1
            width, tall = panel.get("width", 8), HEIGHTS[panel["kind"]]
            if x + width > WIDTH:
                x, y, height = 0, y + height, 0
            yield _panel(number, panel, {"x": x, "y": y, "w": width, "h": tall})
            x, height = x + width, max(height, tall)
        y += height


def _row(number: int, title: str, y: int) -> Json:
    place = {"x": 0, "y": y, "w": WIDTH, "h": ROW_HEIGHT}
    return {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}


def _panel(number: int, panel: Json, place: Json) -> Json:
    kind = panel["kind"]
    return {
        "id": number,
        "type": kind,
        "title": panel["title"],
        "description": panel["description"],
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": _options(panel),
        "targets": [_target(i, panel, *item) for i, item in enumerate(panel["queries"].items())],
    }


def _defaults(panel: Json) -> Json:
    defaults: Json = {"unit": panel["unit"], "custom": {}}
    if "min" in panel:
        defaults["min"] = panel["min"]
    if "max" in panel:
        defaults["max"] = panel["max"]
    if panel["kind"] == "timeseries":
        defaults["custom"] = TIMESERIES | {"stacking": {"mode": "normal" if panel.get("stack") else "none"}}
    steps = [{"color": "green", "value": None}]
    steps += [{"color": color, "value": value} for color, value in panel.get("thresholds", {}).items()]
    return defaults | {"thresholds": {"mode": "absolute", "steps": steps}}


def _options(panel: Json) -> Json:
    shown: Json = {"calcs": ["lastNotNull"], "fields": "", "values": False}
    match panel["kind"]:
        case "stat":
            return {"reduceOptions": shown, "colorMode": "value", "graphMode": "area", "textMode": "auto"}
        case "bargauge":
            return {"reduceOptions": shown, "orientation": "vertical", "displayMode": "basic"}
        case "heatmap":
            return {
                "calculate": False,
                "yAxis": {"unit": panel["unit"]},
                "color": {"mode": "scheme", "scheme": "Blues", "steps": 64},
                "cellGap": 1,
                "tooltip": {"mode": "single", "yHistogram": True},
            }
    legend = {"displayMode": "table", "placement": "bottom", "calcs": ["mean", "max"], "showLegend": True}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}


def _target(index: int, panel: Json, legend: str, query: str) -> Json:
    target = {
        "refId": chr(ord("A") + index),
        "datasource": DATASOURCE,
        "expr": expand(query),
        "legendFormat": legend,
        "editorMode": "code",
    }
    if panel["kind"] == "heatmap":
        return target | {"format": "heatmap"}
    if panel["kind"] == "bargauge":
        return target | {"instant": True}
    return target


def main() -> None:
    """Write every dashboard."""
    TARGET.mkdir(exist_ok=True)
    for path in sources():
        (TARGET / f"{path.stem}.json").write_text(text(path), encoding="utf-8")


if __name__ == "__main__":
    main()
