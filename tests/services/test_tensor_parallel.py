"""A proposer of two ranks and verifiers of one, placed on a Ray cluster whose GPUs are only on paper."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray
from ray import serve
from ray.cluster_utils import Cluster
from ray.serve.config import HTTPOptions
from ray.util.placement_group import placement_group_table

from services.address import free_port
from services.app import APP_NAME, application
from services.config.settings import Settings, parse_settings
from services.replicas.ranks import RankFacts
from tests.services.cli.chat_model import save_chat_model

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

GPUS = {"proposers": 2, "verifiers": 2}  # of two nodes
NAME = "tiny"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Serve on a cluster of a head and two nodes with two GPUs each, as Ray is told."""
    nothing = {"object_store_memory": 80 << 20}
    head = {"num_cpus": 2, "num_gpus": 0, "include_dashboard": False, **nothing}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for pool, count in GPUS.items():
        cluster.add_node(num_cpus=4, num_gpus=count, resources={pool: 1000}, **nothing)
    port = free_port("127.0.0.1", 0)
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    serve.start(http_options=HTTPOptions(host="127.0.0.1", port=port, request_timeout_s=None))
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("tensor_parallel") / "model")


def _settings(checkpoint: Path, *, verifiers: int = 2, max_rows: int = 256) -> Settings:
    engine = {
        "model": {"checkpoint": str(checkpoint), "device": "cpu", "dtype": "float32", "threads": 1},
        "cache": {"tokens": 512},
        "scheduler": {"max_rows": max_rows},
    }
    here, there = {"proposers": 1.0}, {"verifiers": 1.0}
    bundles = {
        "proposer": [{"CPU": 0.5, "GPU": 1.0} | here] * 2,
        "verifier": [{"CPU": 0.5, "GPU": 1.0} | there],
    }

    def part(role: str, **more: Any) -> dict[str, Any]:
        resources = {"num_cpus": 0.5, "num_gpus": 1.0, "placement_group_bundles": bundles[role]}
        return {"engine": engine, "resources": resources, "max_ongoing_requests": 4, **more}

    data = {
        "model": NAME,
        "router": {"resources": {"num_cpus": 0.1}},
        "proposer": part("proposer", tensor_parallel=2),
        "verifier": part("verifier", replicas=verifiers) if verifiers else None,
        "metrics": {"enabled": False},
    }
    return parse_settings(data, "test")


def _deploy(settings: Settings) -> None:
    serve.run(application(settings), name=APP_NAME, route_prefix="/")


def _ranks(deployment: str) -> list[RankFacts]:
    facts: list[RankFacts] = serve.get_deployment_handle(deployment, APP_NAME).ranks.remote().result(timeout_s=60)
    return facts


def _groups() -> list[dict[str, Any]]:
    """Placement groups that hold resources."""
    return [group for group in placement_group_table().values() if group["state"] != "REMOVED"]


def _until(holds: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _text(url: str, mode: str) -> str:
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 12,
        "ignore_eos": True,
        "decoding": {"mode": mode, "block_size": 4, "theta": 0.0},
    }
    reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120)
    assert reply.status_code == 200, reply.text
    content: str = reply.json()["choices"][0]["message"]["content"]
    return content


def _node(pool: str) -> str:
    (node,) = [node["NodeID"] for node in ray.nodes() if pool in node["Resources"] and node["Alive"]]
    return str(node)


def test_ranks_live_and_die_together(url: str, checkpoint: Path) -> None:
    _deploy(_settings(checkpoint))
    text = _text(url, "ar")
    assert _text(url, "lossless") == text
    assert _text(url, "prove")

    ranks = _ranks("Proposer")
    assert [facts.rank for facts in ranks] == [0, 1]
    assert {facts.node for facts in ranks} == {_node("proposers")}
    assert {facts.gpus for facts in ranks} == {(0,), (1,)}, "each rank has a GPU of its own"
    assert {facts.node for facts in _ranks("Verifier")} == {_node("verifiers")}
    shapes = sorted((group["strategy"], len(group["bundles"])) for group in _groups())
    assert shapes == [("STRICT_PACK", 1), ("STRICT_PACK", 1), ("STRICT_PACK", 2)]

    os.kill(ranks[1].pid, signal.SIGKILL)
    _until(lambda: _replaced({facts.pid for facts in ranks}))
    assert _text(url, "ar") == text
    assert len(_groups()) == 3


def test_redeployments_leave_nothing_behind(url: str, checkpoint: Path) -> None:
    """Each time every replica is replaced: the configuration of its engine has changed."""
    pids: set[int] = set()
    for turn in range(5):
        _deploy(_settings(checkpoint, verifiers=0, max_rows=257 + turn))
        ranks = {facts.pid for facts in _ranks("Proposer")}
        assert not ranks & pids
        pids |= ranks
    _until(lambda: len(_groups()) == 1)
    assert {_alive(pid) for pid in ranks} == {True}
    _until(lambda: not any(_alive(pid) for pid in pids - ranks))
    serve.delete(APP_NAME)
    _until(lambda: not _groups())
    _until(lambda: not any(_alive(pid) for pid in pids))


def _replaced(gone: set[int]) -> bool:
    """Whether the proposer runs in none of the processes `gone`."""
    if serve.status().applications[APP_NAME].deployments["Proposer"].replica_states.get("RUNNING") != 1:
        return False
    try:
        return not gone & {facts.pid for facts in _ranks("Proposer")}
    except Exception:  # the replica that goes may still be asked
        return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
