"""The application on several nodes of a Ray cluster: Router and proposer on one, verifiers on the others."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray
from ray import serve
from ray.cluster_utils import Cluster

from services.app import APP_NAME
from services.config.settings import parse_settings
from services.launch import Running, launch
from services.replicas.members import Members
from tests.services.cli.chat_model import save_chat_model

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

BACK = ("127.0.0.2", "127.0.0.3")  # addresses of their own: nothing may take another node for its own
NAME = "tiny"
PATIENCE_S = 120.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A head, and two nodes with room for one verifier each."""
    store = {"object_store_memory": 80 << 20}
    head = {"num_cpus": 4, "resources": {"front": 2}, "include_dashboard": False, **store}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for address in BACK:
        cluster.add_node(num_cpus=2, resources={"back": 1}, node_ip_address=address, **store)
    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = cluster.address
    try:
        yield cluster
    finally:
        if before is None:
            del os.environ["RAY_ADDRESS"]
        else:
            os.environ["RAY_ADDRESS"] = before
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def application(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    # These nodes share a machine, so their HTTP proxies would share one port: a request may meet that of the lost node.
    monkeypatch.setattr(serve, "start", partial(serve.start, proxy_location="HeadOnly"))
    folder = save_chat_model(tmp_path / "model")
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 4096}))
    engine = {"model": {"checkpoint": str(folder), "deterministic": True, "device": "cpu"}}

    def on(node: str) -> dict[str, Any]:
        return {"num_cpus": 1, "placement_group_bundles": [{"CPU": 1, node: 1}]}

    data = {
        "port": 0,
        "model": NAME,
        "router": {"resources": {"num_cpus": 0, "placement_group_bundles": [{"CPU": 1, "front": 1}]}},
        "proposer": {"engine": engine, "resources": on("front")},
        "verifier": {"engine": engine, "resources": on("back")},
        "healing": {"degrade": "fail", "verifier_deadline_s": 300},
    }
    with launch(parse_settings(data, "test")) as running:
        yield running


def _hosts() -> dict[str, list[str]]:
    """Where the replicas of each deployment listen."""
    members = asyncio.run(Members(APP_NAME).replicas())
    return {name: [replica.replica_metadata["host"] for replica in found] for name, found in members.items()}


def _chunks(url: str) -> Iterator[str]:
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 2500,
        "ignore_eos": True,
        "stream": True,
        "decoding": {"mode": "prove", "theta": 0.02, "block_size": 4},
    }
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=300) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line.removeprefix("data: "))
                assert "error" not in chunk, chunk
                yield chunk["choices"][0]["delta"].get("content", "")


def test_a_nodes_death_is_a_replicas_death(cluster: Cluster, application: Running) -> None:
    hosts = _hosts()
    (at,) = hosts["Verifier"]
    assert at in BACK
    assert not set(hosts["Router"] + hosts["Proposer"]) & set(BACK)
    expected = "".join(_chunks(application.url))
    text = ""
    for number, piece in enumerate(_chunks(application.url)):
        text += piece
        if number == 20:
            (node,) = [node for node in cluster.worker_nodes if node.node_ip_address == at]
            cluster.remove_node(node, allow_graceful=False)
    assert text == expected
    deadline = time.monotonic() + PATIENCE_S  # a fast stream is over before the other node's replica is up
    while (found := _hosts()["Verifier"]) in ([], [at]) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert found == [address for address in BACK if address != at]
