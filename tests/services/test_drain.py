"""A replica that is scaled away under running streams: it keeps its sessions for a while, then they move."""

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import ray
from ray import serve
from ray.serve._private.common import DeploymentID
from ray.serve._private.constants import SERVE_CONTROLLER_NAME, SERVE_NAMESPACE
from ray.serve.config import HTTPOptions

from prove_core.types import Role
from services.address import free_port
from services.app import APP_NAME, application
from services.benchmarks.chaos_plan import chaos_settings
from services.benchmarks.chaos_streams import Stream
from services.benchmarks.victims import Victim, victims
from services.replicas.members import Members
from tests.services.cli.chat_model import save_chat_model

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

STREAMS = 4
TOKENS = 500
DRAIN_S = 1.0


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """Two verifiers that may be told to be one."""
    folder = save_chat_model(tmp_path / "model")
    config = folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 4096}))
    engine = {"model": {"checkpoint": str(folder), "deterministic": True}}
    settings = chaos_settings(engine, engine, (1, 2))
    assert settings.verifier is not None
    going = settings.verifier.model_copy(update={"drain_s": DRAIN_S})
    settings = settings.model_copy(update={"verifier": going, "model": "tiny"})
    port = free_port("127.0.0.1", 0)
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        serve.start(http_options=HTTPOptions(host="127.0.0.1", port=port, request_timeout_s=None))
        serve.run(application(settings), name=APP_NAME, external_scaler_enabled=True)
        yield f"http://127.0.0.1:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()


def _verifiers() -> list[Victim]:
    return asyncio.run(victims(Members(APP_NAME), Role.VERIFIER))


def _scale(verifiers: int) -> None:
    controller = ray.get_actor(SERVE_CONTROLLER_NAME, namespace=SERVE_NAMESPACE)
    ray.get(controller.update_deployment_replicas.remote(DeploymentID("Verifier", APP_NAME), verifiers))


def _follow(url: str, index: int, stream: Stream) -> Stream:
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": f"number {index}"}],
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "stream": True,
        "decoding": {"mode": ("prove", "speculative")[index % 2]},
    }
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=300) as reply:
        for line in reply.iter_lines():
            stream.take(line)
    return stream


def test_sessions_of_a_replica_that_is_scaled_away_move_and_keep_their_text(url: str) -> None:
    with ThreadPoolExecutor(STREAMS + 1) as pool:
        calm = list(pool.map(lambda i: _follow(url, i, Stream()), range(STREAMS)))
        streams = [Stream() for _ in range(STREAMS)]
        running = [pool.submit(_follow, url, index, stream) for index, stream in enumerate(streams)]
        while min(len(stream.marks) for stream in streams) < 5 or len(_verifiers()) < 2:
            time.sleep(0.02)
        assert min(victim.sessions for victim in _verifiers()) > 0, "one of them has nothing to lose"
        _scale(1)
        late = pool.submit(_follow, url, 0, Stream())
        for future in running:
            future.result()
        assert late.result().outcome == calm[0].outcome
    assert [stream.outcome for stream in streams] == [stream.outcome for stream in calm]
    assert all(stream.error is None and stream.done for stream in calm)
    assert len(_verifiers()) == 1
