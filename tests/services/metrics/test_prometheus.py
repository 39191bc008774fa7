"""Debian's Prometheus scrapes the running application: targets, sums, rules, and every query of the dashboards."""

import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from ray import serve

from dashboards.generate import queries, sources
from prove_core.types import Mode
from services.app import APP_NAME
from services.config.settings import parse_settings
from services.launch import Running, launch
from services.metrics.catalogue import CATALOGUE
from tests.services.cli.chat_model import save_chat_model

PROMETHEUS = shutil.which("prometheus")
RULES = Path(__file__).parents[3] / "dashboards" / "prometheus"
TARGETS = 5  # 2 Routers, 1 proposer, 2 verifiers
PATIENCE_S = 240.0

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed (Debian: apt-get install prometheus)"),
]


class Prometheus:
    """A running server and its query API."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=30)

    def get(self, path: str, **params: str) -> Any:
        """`data` of an API call."""
        reply = self._client.get(f"/api/v1/{path}", params=params)
        assert reply.status_code == 200, f"{params}: {reply.text}"
        return reply.json()["data"]

    def values(self, query: str) -> list[float]:
        """The values of an instant query."""
        return [float(found["value"][1]) for found in self.get("query", query=query)["result"]]

    def by(self, label: str, query: str) -> dict[str, float]:
        """The values that are not 0, by a label."""
        found = self.get("query", query=query)["result"]
        return {each["metric"][label]: float(each["value"][1]) for each in found if float(each["value"][1])}

    def health(self) -> set[str]:
        """What the rules say of their last evaluation; `unknown` before the first."""
        return {rule["health"] for group in self.get("rules")["groups"] for rule in group["rules"]}

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    engine = {
        "model": {"checkpoint": str(save_chat_model(tmp_path_factory.mktemp("m") / "m"))},
        "cache": {"tokens": 4096},
    }
    verifier = {"engine": engine, "replicas": 2}
    data = {"port": 0, "model": "tiny", "router": {"replicas": 2}, "proposer": {"engine": engine}, "verifier": verifier}
    with launch(parse_settings(data, "test")) as running:
        yield running


@pytest.fixture(scope="module")
def prometheus(application: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = folder / "prometheus.yml"
    config.write_text(yaml.safe_dump(_config(application.url)))
    command = [str(PROMETHEUS), f"--config.file={config}", f"--storage.tsdb.path={folder}", "--log.level=warn"]
    server = subprocess.Popen([*command, f"--web.listen-address={address}"])
    try:
        prometheus = Prometheus(f"http://{address}")
        _becomes(prometheus.ready, True)
        yield prometheus
    finally:
        server.terminate()
        server.wait(30)


def _config(url: str) -> dict[str, Any]:
    """The configuration as it is shipped, with this application's address, and less patience."""
    config: dict[str, Any] = yaml.safe_load((RULES / "prometheus.yml").read_text())
    config["global"] |= {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(RULES / name) for name in config["rule_files"]]
    (job,) = config["scrape_configs"]
    job["http_sd_configs"][0] |= {"url": f"{url}/metrics/targets", "refresh_interval": "2s"}
    return config


def _becomes(value: Callable[[], Any], expected: Any) -> None:
    """Ask until it is so, or patience ends."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := value()) != expected and time.monotonic() < deadline:
        time.sleep(0.2)
    assert found == expected


def _ask(url: str, number: int) -> dict[str, Any]:
    """One request, of each mode in turn, every other one streaming; what its reply says."""
    fields: dict[str, Any] = {"decoding": {"mode": [*Mode][number % len(Mode)]}, "max_tokens": 16 + number}
    fields |= {"model": "tiny", "messages": [{"role": "user", "content": f"Count to {number}"}], "n": 1 + number % 2}
    if number % 2:
        fields |= {"stream": True, "stream_options": {"include_usage": True}}
    reply = httpx.post(f"{url}/v1/chat/completions", json=fields, timeout=120)
    assert reply.status_code == 200, reply.text
    if not number % 2:
        return dict(reply.json())
    *_, usage, done = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
    assert done == "[DONE]"
    return dict(json.loads(usage))


def _load(url: str, kill: Callable[[], None]) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(_ask, url, number) for number in range(4 * len(Mode))]
        asked[len(Mode)].result()
        kill()
        return [each.result() for each in asked]


def _kill_verifier() -> None:
    handle = serve.get_deployment_handle("Verifier", APP_NAME)
    os.kill(handle.facts.remote().result(timeout_s=30).pid, signal.SIGKILL)


def test_prometheus_sees_everything(application: Running, prometheus: Prometheus) -> None:
    _becomes(lambda: prometheus.values('count(up{job="prove"} == 1)'), [TARGETS])
    replies = _load(application.url, _kill_verifier)
    _sums_equal_usage(prometheus, replies)
    _becomes(lambda: prometheus.values('count(up{job="prove"} == 1)'), [TARGETS])  # the dead one's successor
    _becomes(lambda: prometheus.values("sum(prove:session_recoveries_total) > bool 0"), [1.0])
    _all_metrics_have_data(prometheus)
    _all_panels_have_data(prometheus, application.url)
    _becomes(prometheus.health, {"ok"})


def _sums_equal_usage(prometheus: Prometheus, replies: list[dict[str, Any]]) -> None:
    told: dict[str, Counter[str]] = {name: Counter() for name in ("generation_tokens", "prompt_tokens", "cycles")}
    for reply in replies:
        counts = reply["metrics"]["speculative_decoding"]
        told["generation_tokens"][counts["mode"]] += reply["usage"]["completion_tokens"]
        told["prompt_tokens"][counts["mode"]] += reply["usage"]["prompt_tokens"]
        told["cycles"][counts["mode"]] += counts["cycles"]
    for name, expected in told.items():
        query = f"sum by (mode) (prove:{name}_total)"
        _becomes(partial(prometheus.by, "mode", query), dict(expected))
    ended = prometheus.values('sum(prove:request_outcomes_total{outcome=~"stop|length"})')
    assert ended == prometheus.values("sum(prove:e2e_request_latency_seconds_count)") == [len(replies)]


def _all_metrics_have_data(prometheus: Prometheus) -> None:
    labels: dict[str, set[str]] = {}
    for metric in CATALOGUE:  # a scrape that came late is no matter here
        for series in prometheus.get("query", query=f"last_over_time({metric.samples[0]}[5m])")["result"]:
            labels[metric.name] = set(series["metric"]) - {"__name__", "job", "instance", "le"}
    assert labels == {metric.name: set(metric.label_names) for metric in CATALOGUE}
    present = set(prometheus.get("label/__name__/values"))
    assert {name for metric in CATALOGUE for name in metric.samples} <= present


def _all_panels_have_data(prometheus: Prometheus, url: str) -> None:
    missing = set(_panel_queries())
    deadline = time.monotonic() + PATIENCE_S
    while missing and time.monotonic() < deadline:
        for number in range(2 * len(Mode)):  # rates need growth between two scrapes
            _ask(url, number)
        missing -= {query for query in missing if not all(map(math.isnan, prometheus.values(query)))}
    assert not missing


def _panel_queries() -> Iterator[str]:
    """Each query of each dashboard, for all models, modes, roles and replicas."""
    for path in sources():
        for query in queries(yaml.safe_load(path.read_text(encoding="utf-8"))):
            yield re.sub(r"\$(model|mode|role|replica)\b", ".*", re.sub(r"\$__(rate_interval|range)", "5m", query))
