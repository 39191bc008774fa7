"""Load comes and goes on a real application: verifiers follow it, no stream breaks, and nothing is left over."""

import asyncio
import time
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.benchmarks import ramp as bench
from services.benchmarks.ramp import direction_changes, run
from services.benchmarks.ramp_load import RampLoad
from services.benchmarks.ramp_plan import FULL, QUICK, Ramp, ramp, ramp_settings
from services.benchmarks.ramp_watch import Replica, Seen
from tests.services.cli.chat_model import save_chat_model


@pytest.mark.cluster
@pytest.mark.timeout(600)
def test_verifiers_come_with_the_load_and_go_with_it(tmp_path: Path) -> None:
    model = str(save_chat_model(tmp_path / "model"))
    engine = {"model": {"checkpoint": model, "dtype": "float32"}, "cache": {"tokens": 2048}}
    scaling = {"max": 3, "target_busy": 0.05, "max_wait_s": 10, "upscale_delay_s": 1, "downscale_delay_s": 3}
    plan = ramp(8, rise_s=6, hold_s=16, silence_s=60, max_tokens=16)
    said: list[str] = []
    report = run(ramp_settings(engine, engine, scaling), plan, "prove", said.append)
    figures = report.figures
    assert figures["complete_streams"] == figures["streams"] > 8, said
    assert figures["verifiers_before"] == figures["verifiers_after"] == 1, said
    assert figures["verifiers_most"] > 1, report.samples["busy"]
    assert figures["direction_changes"] == 1, report.samples["verifiers"]
    assert figures["sessions_after"] == figures["held_pages_after"] == 0
    assert figures["tasks_after"] == figures["tasks_before"]
    assert set(report.samples) == set(Seen.__slots__)


@given(st.floats(-5, 1000))
def test_a_ramp_rises_stays_and_falls(second: float) -> None:
    for plan in (QUICK, FULL):
        begin, end = plan.plateau
        assert 0 <= plan.streams(second) <= 32
        assert (plan.streams(second) == 32) or not begin <= second < end
        assert plan.streams(second) == 0 or 0 <= second < plan.seconds


def test_a_ramp_without_constant_load_has_no_plateau() -> None:
    assert Ramp(((0.0, 1.0), (5.0, 4.0)), 8, 1).plateau == (0.0, 0.0)


@given(st.lists(st.integers(1, 4), max_size=12))
def test_direction_changes_are_the_inner_extremes(counts: list[int]) -> None:
    steps = [count for count, before in zip(counts, [None, *counts], strict=False) if count != before]
    inner = zip(steps, steps[1:], steps[2:], strict=False)
    assert direction_changes(counts) == sum((b - a) * (c - b) < 0 for a, b, c in inner)
    assert direction_changes(counts) <= max(0, len(list(pairwise(steps))) - 1)


def _seen(second: float, verifiers: int) -> Seen:
    return Seen(second, 0, verifiers, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize("last", [1, 2])
def test_the_watch_outlasts_silence_and_ends(monkeypatch: pytest.MonkeyPatch, last: int) -> None:
    said: list[str] = []

    async def watched() -> list[Seen]:
        told, counts = asyncio.Event(), iter((1, 2, 2))

        async def look(self: object, second: float, streams: int) -> Seen:
            if sum("no answer" in line for line in said) < 3:
                raise httpx.ReadTimeout("the application is busy at first")
            count = next(counts, None)
            if count is None:
                told.set()
            return _seen(second, last if count is None else count)

        monkeypatch.setattr(bench.Watch, "look", look)
        plan = Ramp(((0.0, 1.0), (0.01, 1.0)), 8, silence_s=0.4)
        load = RampLoad("http://nowhere", "model", plan, "prove")
        clients = asyncio.ensure_future(told.wait())
        return await bench._watched("http://nowhere", plan, load, clients, time.monotonic(), said.append)

    monkeypatch.setattr(bench, "LOOK_S", 0.01)
    monkeypatch.setattr(bench, "CALM_S", 0.02)
    seen = asyncio.run(watched())
    assert sum("no answer" in line for line in said) == 3
    assert [one.verifiers for one in seen][:3] == [1, 2, 2]
    assert {one.verifiers for one in seen[3:]} == {last}
    assert seen[-1].second > 0.4 or last == 1, "too many verifiers end the wait only after the silence"


def test_samples_are_chosen_by_their_labels() -> None:
    from prometheus_client.samples import Sample

    samples = [
        Sample("prove:kv_pages", {"state": "held", "role": "verifier"}, 3),
        Sample("prove:kv_pages", {"state": "free", "role": "verifier"}, 5),
        Sample("prove:queue_wait_seconds_bucket", {"le": "0.1"}, 2),
        Sample("prove:queue_wait_seconds_bucket", {"le": "+Inf"}, 4),
    ]
    replica = Replica("a", "verifier", samples)
    assert replica.value("kv_pages", state="held") == 3
    assert replica.value("kv_pages") == 8
    assert replica.buckets("queue_wait_seconds") == {0.1: 2, float("inf"): 4}
