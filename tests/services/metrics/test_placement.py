"""Which placement groups are those of our replicas."""

from typing import Any

from prometheus_client import generate_latest

from services.metrics.metric import Part
from services.metrics.placement import PlacementMetrics, live_groups
from services.metrics.registry import Identity, Registry


def _group(name: str, state: str = "CREATED") -> dict[str, Any]:
    return {"name": name, "state": state, "bundles": {}}


TABLE = {
    "1": _group("SERVE_REPLICA::prove#Proposer#a"),
    "2": _group("SERVE_REPLICA::prove#Verifier#b"),
    "3": _group("SERVE_REPLICA::prove#Verifier#c", "PENDING"),
    "4": _group("SERVE_REPLICA::prove#Verifier#d", "REMOVED"),
    "5": _group("SERVE_REPLICA::other#Verifier#e"),
    "6": _group("training"),
    "7": _group(""),
}


def test_groups_count_until_they_are_removed_and_others_do_not() -> None:
    assert live_groups(TABLE, "prove") == {"router": 0, "proposer": 1, "verifier": 2}


def test_each_role_has_its_series_at_every_scrape() -> None:
    table: dict[str, dict[str, Any]] = {}
    registry = Registry(Identity(Part.ROUTER, "r", "m"))
    PlacementMetrics(registry, "prove", lambda: table)
    labels = 'model="m",replica="r",role="router",target_role="verifier"'
    assert f"prove:placement_groups{{{labels}}} 0.0" in generate_latest(registry.collector).decode()
    table.update(TABLE)
    assert f"prove:placement_groups{{{labels}}} 2.0" in generate_latest(registry.collector).decode()
