"""Whole runs on a tiny checkpoint folder: what comes out is what an engine loads."""

import json
from pathlib import Path

import pytest
import torch

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.build import build_engine
from prove_core.errors import CheckpointError
from prove_core.model.adapters import read_adapter
from prove_core.model.loader import load
from prove_core.training.config import Method, OptimizerConfig, ProposerTraining, VerifierTraining
from prove_core.training.dataset import read_examples
from prove_core.training.export import load_proposer
from prove_core.training.influence import influences, most_influential
from prove_core.training.layout import lay_out
from prove_core.training.runs import train_proposer, train_verifier
from prove_core.types import CallRequest, CallResult, Commit, Proposal, Propose
from tests.core.engine.harness import call
from tests.core.model.checkpoints import MASK, save_llama
from tests.core.training.examples import adapter_config, tiny_config


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> ModelConfig:
    """In float32, with a mask token and three layers."""
    folder = save_llama(tmp_path_factory.mktemp("runs") / "base", layers=3, extra=(MASK,))
    return ModelConfig(checkpoint=str(folder), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers that count upwards."""
    path = tmp_path_factory.mktemp("data") / "answers.jsonl"
    lines = [{"prompt": [i, i + 1], "answer": list(range(i + 2, i + 14))} for i in range(40)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def proposer_config(base: ModelConfig, method: Method = Method.GATED, **changes: object) -> ProposerTraining:
    return tiny_config(12, method, model=base, **changes)


def proposed(config: ModelConfig, tokens: tuple[int, ...]) -> tuple[int, ...]:
    """An engine's block after `tokens`."""
    engine = build_engine(EngineConfig(model=config, cache=CacheConfig(tokens=256)), name="run").engine
    try:
        result = call(engine, CallRequest(Commit("s", 1, 0, tokens), Propose(4)))
        engine.release("s")
    finally:
        engine.stop()
    assert isinstance(result, CallResult)
    assert isinstance(result.answer, Proposal)
    return result.answer.tokens


@pytest.mark.parametrize("method", list(Method))
def test_an_engine_proposes_what_was_trained(base: ModelConfig, data: Path, tmp_path: Path, method: Method) -> None:
    config = proposer_config(base, method, adapter=adapter_config(method, sequential=0))
    out = train_proposer(config, [data], tmp_path / "run")
    assert out is not None
    served = base.model_copy(update={"checkpoint": str(out)} if method is Method.FULL else {"adapter": str(out)})
    examples = read_examples([data], vocabulary=260)[3:4]
    batch = lay_out(examples, [[6]], 4)
    if method is Method.FULL:
        found = _full_logits(served, batch.tokens[0, :7].tolist())
    else:
        proposer = load_proposer(load(base, attention="sdpa").model, out)
        with torch.no_grad():
            found = (proposer.rows(batch).placeholders[0, 0] @ proposer.head.T)[:, :259].argmax(-1).tolist()
    assert list(proposed(served, examples[0].tokens[:7])[1:]) == found


def _full_logits(config: ModelConfig, tokens: list[int]) -> list[int]:
    """Three mask tokens behind `tokens`, as plain transformers reads them."""
    loaded = load(config, attention="sdpa")
    mask = loaded.info.tokenizer.convert_tokens_to_ids(MASK)
    assert loaded.info.placeholder_id == mask
    with torch.no_grad():
        return list(loaded.model(torch.tensor([tokens + [mask] * 3])).logits[0, -3:, :259].argmax(-1).tolist())


def test_a_warm_start_goes_on_from_an_adapter_of_any_rank(base: ModelConfig, data: Path, tmp_path: Path) -> None:
    first = train_proposer(proposer_config(base), [data], tmp_path / "first")
    wider = adapter_config().model_copy(update={"rank": 12})
    still = OptimizerConfig(steps=0)
    config = proposer_config(base, adapter=wider, warm_start=str(first), optimizer=still)
    second = train_proposer(config, [data], tmp_path / "second")
    assert second is not None
    assert read_adapter(str(second)).settings.r == 12
    tokens = tuple(range(20, 27))
    assert proposed(base.model_copy(update={"adapter": str(first)}), tokens) == proposed(
        base.model_copy(update={"adapter": str(second)}), tokens
    )
    lower = proposer_config(base, warm_start=str(second), optimizer=still)
    third = train_proposer(lower, [data], tmp_path / "third")
    assert third is not None
    assert read_adapter(str(third)).settings.r == adapter_config().rank
    assert proposed(base.model_copy(update={"adapter": str(third)}), tokens) == proposed(
        base.model_copy(update={"adapter": str(first)}), tokens
    )
    ungated = proposer_config(base, Method.UNGATED, adapter=wider, warm_start=str(first))
    with pytest.raises(CheckpointError, match="gated adapter"):
        train_proposer(ungated, [data], tmp_path / "fourth")


@pytest.mark.parametrize("layers", [None, (0, 2)])
def test_a_warm_start_keeps_its_adapters_layers(
    base: ModelConfig, data: Path, tmp_path: Path, layers: tuple[int, ...] | None
) -> None:
    """Named again or not; other ones are refused, as where an adapter is loaded."""
    model, short = base.model_copy(update={"layers": layers}), OptimizerConfig(steps=1)
    first = train_proposer(proposer_config(model, optimizer=short), [data], tmp_path / "first")
    for name, same in (("second", base), ("third", model)):
        config = proposer_config(same, warm_start=str(first), optimizer=short)
        second = train_proposer(config, [data], tmp_path / name)
        assert second is not None
        record = read_adapter(str(second)).record
        assert record is not None
        assert record.layers == layers
    other = proposer_config(base.model_copy(update={"layers": 1}), warm_start=str(first), optimizer=short)
    with pytest.raises(CheckpointError, match="trained on other layers"):
        train_proposer(other, [data], tmp_path / "fourth")


@pytest.mark.parametrize("layers", [None, 1, (0, 2)])
@pytest.mark.parametrize("role", ["verifier", "proposer"])
def test_an_adapter_brings_its_layers(
    base: ModelConfig, data: Path, tmp_path: Path, role: str, layers: int | tuple[int, ...] | None
) -> None:
    model, optimizer = base.model_copy(update={"layers": layers}), OptimizerConfig(steps=3)
    if role == "verifier":
        out = train_verifier(VerifierTraining(model=model, rank=4, optimizer=optimizer), [data], tmp_path / "run")
    else:
        out = train_proposer(proposer_config(model, optimizer=optimizer), [data], tmp_path / "run")
    kept = {None: None, 1: (0,), (0, 2): (0, 2)}[layers]
    for same in (base, model):
        loaded = load(same.model_copy(update={"adapter": str(out)}))
        assert loaded.layers == kept
        assert loaded.model.config.num_hidden_layers == (3 if kept is None else len(kept))
    with pytest.raises(CheckpointError, match="trained on other layers"):
        load(base.model_copy(update={"adapter": str(out), "layers": 2}))


def test_layers_are_picked_by_what_they_do(base: ModelConfig, data: Path, tmp_path: Path) -> None:
    model = load(base, attention="sdpa").model
    examples = read_examples([data], vocabulary=260)
    with torch.no_grad():
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            model.get_submodule(f"model.layers.1.{name}").weight.zero_()
    values = influences(model, examples[:4])
    assert values[1] == pytest.approx(0.0, abs=1e-6)
    assert min(values[0], values[2]) > 0.01
    assert most_influential(values, 2) == (0, 2)
    config = VerifierTraining(model=base, pick=2, rank=4, optimizer=OptimizerConfig(steps=2))
    out = train_verifier(config, [data], tmp_path / "run")
    record = read_adapter(str(out)).record
    assert record is not None
    assert record.layers == most_influential(influences(load(base, attention="sdpa").model, examples[::2]), 2)
    with pytest.raises(CheckpointError, match="3 layers"):
        train_verifier(config.model_copy(update={"pick": 4}), [data], tmp_path / "many")
    with pytest.raises(ValueError, match="pick"):
        VerifierTraining(model=base.model_copy(update={"layers": 1}), pick=1)


def test_a_fully_trained_verifier_is_a_checkpoint_of_its_own(base: ModelConfig, data: Path, tmp_path: Path) -> None:
    short = base.model_copy(update={"layers": (0, 2)})
    config = VerifierTraining(model=short, method=Method.FULL, optimizer=OptimizerConfig(steps=3))
    out = train_verifier(config, [data], tmp_path / "run")
    loaded = load(base.model_copy(update={"checkpoint": str(out)}))
    assert loaded.model.config.num_hidden_layers == 2
    before = load(short).model.get_parameter("model.layers.1.mlp.up_proj.weight")
    assert not torch.equal(loaded.model.get_parameter("model.layers.1.mlp.up_proj.weight"), before)


def test_a_folder_of_another_run_is_refused(base: ModelConfig, data: Path, tmp_path: Path) -> None:
    config = proposer_config(base)
    train_proposer(config, [data], tmp_path / "run")
    with pytest.raises(CheckpointError, match="other settings"):
        train_proposer(config.model_copy(update={"seed": 1}), [data], tmp_path / "run")
    other = tmp_path / "other.jsonl"
    other.write_text(data.read_text() + data.read_text().splitlines()[0])
    with pytest.raises(CheckpointError, match="other data"):
        train_proposer(config, [other], tmp_path / "run")
    patient = config.model_copy(update={"checkpoint_seconds": 9.0})
    assert train_proposer(patient, [data], tmp_path / "run") is not None, "how often is saved may change"


def test_what_cannot_be_trained_is_refused_at_once(base: ModelConfig, data: Path, tmp_path: Path) -> None:
    nothing = base.model_copy(update={"checkpoint": str(save_llama(tmp_path / "plain"))})
    with pytest.raises(CheckpointError, match="placeholder"):
        train_proposer(proposer_config(nothing), [data], tmp_path / "a")
    with pytest.raises(CheckpointError, match="name the base alone"):
        train_verifier(VerifierTraining(model=ModelConfig(checkpoint="default-proposer")), [data], tmp_path / "b")
    with pytest.raises(ValueError, match="method full"):
        ProposerTraining(method=Method.FULL)
