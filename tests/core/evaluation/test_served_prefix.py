"""What is trained is what is served: the prefix of a proposer in training is that of an engine's proposals."""

import random
from pathlib import Path

import pytest
import torch

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.build import build_engine
from prove_core.engine.engine import Engine
from prove_core.errors import DataError
from prove_core.evaluation.prefix import measure
from prove_core.evaluation.served_prefix import measure_served
from prove_core.model.adapters import BaseRecord
from prove_core.model.loader import load
from prove_core.training.config import AdapterConfig, Method
from prove_core.training.dataset import Example
from prove_core.training.export import export_adapter, load_proposer
from prove_core.training.proposer import BlockProposer
from prove_core.types import CallRequest, CallResult, Commit, Proposal, Propose
from tests.core.engine.harness import call
from tests.core.model.checkpoints import save_llama

BLOCK_SIZE = 4


@pytest.fixture(
    scope="module",
    params=[(Method.GATED, 0), (Method.GATED, 8), (Method.UNGATED, 8)],
    ids=["plain", "sequential", "ungated"],
)
def config(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> ModelConfig:
    """A tiny checkpoint with an adapter that matters, in float32."""
    method, sequential = request.param
    folder = tmp_path_factory.mktemp("proposer")
    base = save_llama(folder / "base", width=259)  # no id that an engine would ban
    plain = ModelConfig(checkpoint=str(base), dtype="float32", device="cpu")
    model = load(plain, attention="sdpa").model
    settings = AdapterConfig(block_size=BLOCK_SIZE, rank=4, sequential=sequential)
    proposer = BlockProposer(model, settings, method=method)
    with torch.no_grad():
        for _, parameter in proposer.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.2)
    export_adapter(proposer, folder / "adapter", BaseRecord(name="base"))
    return plain.model_copy(update={"adapter": str(folder / "adapter")})


@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_prefix_in_training_is_that_of_served_proposals(config: ModelConfig, concurrency: int) -> None:
    """Along pieces of the engine's own proposals, so that some placeholders match and some do not."""
    engine = build_engine(EngineConfig(model=config, cache=CacheConfig(tokens=512)), name="test").engine
    rng, ticks = random.Random(0), []
    try:
        trajectories = [_trajectory(engine, rng) for _ in range(5)]
        served = measure_served(
            engine, trajectories, BLOCK_SIZE, stride=1, concurrency=concurrency, tick=lambda: ticks.append(1)
        )
        with pytest.raises(DataError, match="longer than a block"):
            measure_served(engine, [Example((1, 2), (3, 4))], BLOCK_SIZE)
    finally:
        engine.stop()
    assert all(0.1 < share < 0.9 for share in served.match), "some match and some do not"
    assert len(ticks) == 5
    assert config.adapter is not None
    loaded = load(config.model_copy(update={"adapter": None}), attention="sdpa")
    proposer = load_proposer(loaded.model, Path(config.adapter))
    trained = measure(proposer, trajectories, BLOCK_SIZE, stride=1)
    # a head sees true tokens when trained, its own in an engine: the same up to the first mismatch
    assert (trained.mean, trained.survival, trained.match[0]) == (served.mean, served.survival, served.match[0])
    assert trained.anchors == served.anchors


def _trajectory(engine: Engine, rng: random.Random) -> Example:
    tokens = prompt = tuple(rng.randrange(3, 250) for _ in range(5))
    while len(tokens) < 20:
        tokens += _propose(engine, tokens)[: rng.randint(2, BLOCK_SIZE)]
    return Example(prompt, tokens[5:])


def _propose(engine: Engine, tokens: tuple[int, ...]) -> tuple[int, ...]:
    commit = Commit("-".join(map(str, tokens)), 1, 0, tokens)
    result = call(engine, CallRequest(commit, Propose(BLOCK_SIZE)))
    engine.release(commit.session)
    assert isinstance(result, CallResult)
    assert isinstance(result.answer, Proposal)
    return result.answer.tokens
