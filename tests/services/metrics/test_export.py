"""From declarations to what a scrape reads, and where Prometheus finds it."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.metrics import latest as latest_module
from services.metrics.catalogue import PASS_SECONDS, RECOVERIES
from services.metrics.exporter import Exporter
from services.metrics.latest import Latest
from services.metrics.metric import Part
from services.metrics.registry import Identity, Registry
from services.metrics.replicas import ReplicaMetrics
from services.metrics.targets import targets
from tests.services.metrics.reading import total


@dataclass(frozen=True, slots=True)
class _Id:
    unique_id: str


@dataclass(frozen=True, slots=True)
class _Replica:
    replica_id: _Id
    replica_metadata: dict[str, Any]


@pytest.mark.parametrize(
    "accept",
    [
        "*/*",
        "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
        "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",  # Prometheus 2
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;version=1.0.0;"
        "escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",  # Prometheus 3
    ],
)
def test_a_scrape_has_every_sample_with_the_replicas_labels(accept: str) -> None:
    registry = Registry(Identity(Part.VERIFIER, "abc", 'a "quoted" name'))
    registry.counter(RECOVERIES).labels("verifier", "died").inc(3)
    registry.histogram(PASS_SECONDS).observe(0.004)
    exporter = Exporter(registry, "127.0.0.1")
    try:
        text = httpx.get(f"http://127.0.0.1:{exporter.port}/metrics", headers={"Accept": accept}).text
    finally:
        exporter.stop()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (lost,) = families["prove:session_recoveries"].samples
    identity = {"role": "verifier", "replica": "abc", "model": 'a "quoted" name'}
    assert lost.labels == {**identity, "target_role": "verifier", "reason": "died"}
    assert lost.value == 3
    passes = families["prove:pass_seconds"].samples
    assert {sample.name for sample in passes} == set(PASS_SECONDS.samples)
    assert all(identity.items() <= sample.labels.items() for sample in passes)


def test_what_cannot_be_told_is_left_out_of_a_scrape(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Iterator[Any]:
        yield from ()
        raise TimeoutError("the controller is busy")

    registry = Registry(Identity(Part.ROUTER, "r", "m"))
    registry.at_scrape(fails)
    running: dict[str, list[int]] = {"Router": [1], "Proposer": [], "Verifier": [1, 2]}
    ReplicaMetrics(registry, lambda: running)
    for count in (2, 0):
        assert total(registry, "replicas", target_role="verifier") == count
        assert total(registry, "replicas", target_role="proposer") == 0
        running["Verifier"] = []
    assert "the controller is busy" in caplog.text


def test_the_latest_answer_stands_until_it_is_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[int | Exception] = [1, RuntimeError("busy"), 2]

    async def ask() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def run() -> None:
        latest = Latest(ask)
        with pytest.raises(TimeoutError):
            latest()
        seen = []
        for _ in range(3):
            await latest.refresh()
            seen.append(latest())
        assert seen == [1, 1, 2]
        monkeypatch.setattr(latest_module, "STALE_S", -1.0)
        with pytest.raises(TimeoutError):
            latest()

    asyncio.run(run())


def test_targets_are_all_replicas_that_export() -> None:
    replicas = {
        "Verifier": [
            _Replica(_Id("v1"), {"host": "10.0.0.7", "port": 1, "metrics_port": 9001}),
            _Replica(_Id("v2"), {"host": "fd00::7", "port": 2, "metrics_port": 9002}),
            _Replica(_Id("v3"), {"host": "10.0.0.8", "port": 3}),
        ],
        "Router": [_Replica(_Id("r1"), {"host": "10.0.0.9", "metrics_port": 9003})],
    }
    assert targets(replicas, "m") == [
        {"targets": ["10.0.0.9:9003"], "labels": {"role": "router", "replica": "r1", "model": "m"}},
        {"targets": ["10.0.0.7:9001"], "labels": {"role": "verifier", "replica": "v1", "model": "m"}},
        {"targets": ["[fd00::7]:9002"], "labels": {"role": "verifier", "replica": "v2", "model": "m"}},
    ]
