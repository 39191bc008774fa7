"""Counters to rates."""

from prove_core.engine.stats import EngineStats
from services.scaling.meter import Meter


def test_rates_are_those_since_the_last_reading() -> None:
    meter = Meter(100.0)
    first = meter.read(EngineStats(busy_seconds=1.0, free_pages=30, total_pages=40, sessions=2), 0.1, 102.0)
    assert first == {"busy": 0.5, "wait_s": 0.0, "kv": 0.25, "sessions": 2.0}
    second = meter.read(EngineStats(busy_seconds=4.0, free_pages=40, total_pages=40, queue_wait_p90=0.2), 0.6, 104.0)
    assert second == {"busy": 1.0, "wait_s": 0.2, "kv": 0.6, "sessions": 0.0}, "a pass that ends now began before"
    assert meter.read(EngineStats(busy_seconds=4.0, total_pages=1), 0.0, 104.0)["busy"] == 0.0
