"""The dashboards' JSON is that of their sources, and whole: titles, descriptions, units, places on the grid."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.generate import MATCHERS, TARGET, VARIABLES, WIDTH, dashboard, sources, text

SOURCES = pytest.mark.parametrize("source", sources(), ids=lambda path: path.stem)


def _dashboard(source: Path) -> dict[str, Any]:
    return dashboard(yaml.safe_load(source.read_text()))


def _panels(source: Path) -> list[dict[str, Any]]:
    return [panel for panel in _dashboard(source)["panels"] if panel["type"] != "row"]


@SOURCES
def test_the_json_is_up_to_date(source: Path) -> None:
    assert (TARGET / f"{source.stem}.json").read_text() == text(source), "run `python -m dashboards.generate`"


def test_no_dashboard_is_left_over() -> None:
    assert {path.stem for path in TARGET.glob("*")} == {path.stem for path in sources()}


@SOURCES
def test_panels_say_what_they_show(source: Path) -> None:
    for panel in _panels(source):
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert all(target["legendFormat"] and target["expr"] for target in panel["targets"])


@SOURCES
def test_queries_use_variables_that_the_dashboard_has(source: Path) -> None:
    names = {variable["name"] for variable in _dashboard(source)["templating"]["list"]}
    for panel in _panels(source):
        for target in panel["targets"]:
            assert not any(name in target["expr"] for name in MATCHERS)
            assert set(re.findall(r"\$(\w+)", target["expr"])) & VARIABLES.keys() <= names


@SOURCES
def test_panels_do_not_overlap_and_ids_are_unique(source: Path) -> None:
    panels = _dashboard(source)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in _span(place, "x", "w") for y in _span(place, "y", "h")}
        assert place["x"] + place["w"] <= WIDTH
        assert not cells & taken
        taken |= cells
    assert all(a["gridPos"]["y"] <= b["gridPos"]["y"] for a, b in pairwise(panels))


def _span(place: dict[str, int], start: str, length: str) -> range:
    return range(place[start], place[start] + place[length])


def test_uids_are_unique() -> None:
    uids = [json.loads(text(source))["uid"] for source in sources()]
    assert len(set(uids)) == len(uids)
