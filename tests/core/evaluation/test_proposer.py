"""What is trained is what is served: the engine's proposals are those that the prefix is measured on."""

import random

import pytest
import torch

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.build import build_engine
from prove_core.engine.engine import Engine
from prove_core.errors import CheckpointError
from prove_core.evaluation.prefix import anchors_along, figures
from prove_core.evaluation.proposer import measure_adapter
from prove_core.model.adapters import BaseRecord
from prove_core.model.loader import load
from prove_core.training.config import AdapterConfig
from prove_core.training.dataset import Example
from prove_core.training.export import export_adapter
from prove_core.training.proposer import BlockProposer
from prove_core.types import CallRequest, CallResult, Commit, Proposal, Propose
from tests.core.engine.harness import call
from tests.core.model.checkpoints import save_llama

BLOCK_SIZE = 4


@pytest.fixture(scope="module", params=[0, 8], ids=["plain", "sequential"])
def config(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> ModelConfig:
    """A tiny checkpoint with an adapter that matters, without and with a sequential head, in float32."""
    folder = tmp_path_factory.mktemp("proposer")
    base = save_llama(folder / "base")
    plain = ModelConfig(checkpoint=str(base), dtype="float32", device="cpu")
    model = load(plain, attention="sdpa").model
    proposer = BlockProposer(model, AdapterConfig(block_size=BLOCK_SIZE, rank=4, sequential=request.param))
    with torch.no_grad():
        for _, parameter in proposer.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.2)
    export_adapter(proposer, folder / "adapter", BaseRecord(name="base"))
    return plain.model_copy(update={"adapter": str(folder / "adapter")})


def propose(engine: Engine, tokens: tuple[int, ...]) -> tuple[int, ...]:
    """The engine's block after `tokens`."""
    commit = Commit("-".join(map(str, tokens)), 1, 0, tokens)
    result = call(engine, CallRequest(commit, Propose(BLOCK_SIZE)))
    engine.release(commit.session)
    assert isinstance(result, CallResult)
    assert isinstance(result.answer, Proposal)
    return result.answer.tokens


def trajectory(engine: Engine, rng: random.Random) -> Example:
    """Pieces of the engine's own proposals, so that some placeholders match and some do not. No greedy answer."""
    tokens = prompt = tuple(rng.randrange(3, 250) for _ in range(5))
    while len(tokens) < 20:
        tokens += propose(engine, tokens)[: rng.randint(2, BLOCK_SIZE)]
    return Example(prompt, tokens[5:])


def test_measured_matches_are_the_engines_own_proposals(config: ModelConfig) -> None:
    engine = build_engine(EngineConfig(model=config, cache=CacheConfig(tokens=512)), name="test").engine
    rng, matches = random.Random(0), []
    try:
        trajectories = [trajectory(engine, rng) for _ in range(4)]
        for example in trajectories:
            for anchor in anchors_along(example, BLOCK_SIZE, 1):
                proposed = propose(engine, example.tokens[: anchor + 1])[1:]
                matches.append([a == b for a, b in zip(proposed, example.tokens[anchor + 2 :], strict=False)])
    finally:
        engine.stop()
    found = figures(torch.tensor(matches))
    assert all(0.1 < share < 0.9 for share in found.match), "some match and some do not"
    (measured,) = measure_adapter(config, trajectories, [BLOCK_SIZE], stride=1)
    # a head sees true tokens when measured, its own in an engine: the same up to the first mismatch
    assert (measured.mean, measured.survival, measured.match[0]) == (found.mean, found.survival, found.match[0])


def test_an_adapter_is_needed(config: ModelConfig) -> None:
    with pytest.raises(CheckpointError, match="name its folder"):
        measure_adapter(config.model_copy(update={"adapter": None}), [Example((1,), (2,) * 9)], [BLOCK_SIZE])
