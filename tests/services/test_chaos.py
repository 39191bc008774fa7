"""The short form of `prove bench chaos`: replicas of a real application killed and suspended under running streams."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from prove_core.types import Mode, Role
from services.benchmarks.chaos import run
from services.benchmarks.chaos_plan import Event, Plan, chaos_settings
from tests.services.cli.chat_model import save_chat_model

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SHORT = Plan(
    streams=16,
    max_tokens=300,
    modes=(Mode.PROVE, Mode.LOSSLESS, Mode.SPECULATIVE, Mode.MARS),
    events=(
        Event(Role.VERIFIER, signal.SIGKILL, 0.05),
        Event(Role.VERIFIER, signal.SIGKILL, 0.2),
        Event(Role.PROPOSER, signal.SIGKILL, 0.35),
        Event(Role.VERIFIER, signal.SIGSTOP, 0.5, seconds=6.0),
        Event(Role.VERIFIER, signal.SIGKILL, 0.7),
    ),
)


def _model(folder: Path) -> dict[str, Any]:
    """A tiny model with room for text that takes as long as a replica's restart."""
    config = save_chat_model(folder) / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 4096}))
    return {"model": {"checkpoint": str(folder), "deterministic": True}}


def test_whatever_happens_to_replicas_every_text_is_that_of_the_undisturbed_run(tmp_path: Path) -> None:
    engine = _model(tmp_path / "model")
    report = run(chaos_settings(engine, engine, (1, 2), silence_limit_s=2.0), SHORT, print)
    assert len(report.samples) == len(SHORT.events)
    counts = {name: value for name, value in report.figures.items() if not name.endswith("_s")}
    del counts["seconds"], counts["seconds_undisturbed"]
    assert counts == {
        "streams": 16,
        "identical_streams": 16,
        "failed_streams": 0,
        "events": 5,
        "streams_after": 4,
        "identical_after": 4,
        "sessions_left": 0,
    }
