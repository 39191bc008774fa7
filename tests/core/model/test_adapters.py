"""Adapters: gated ones leave every other row alone, ungated ones equal PEFT, misfits are refused."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from prove_core.config import ModelConfig
from prove_core.errors import CheckpointError
from prove_core.model.adapters import AdapterKind, AdapterRecord, BaseRecord, read_adapter, save_adapter
from prove_core.model.loader import LoadedModel, load
from prove_core.model.tiled import make_deterministic
from tests.core.model.checkpoints import save_llama

RANK, ALPHA = 4, 12.0


def load_tiny(base: Path, adapter: Path | None, **options: object) -> LoadedModel:
    config = {"checkpoint": str(base), "dtype": "float32", "device": "cpu", "adapter": adapter and str(adapter)}
    return load(ModelConfig(**config | options), attention="eager")  # type: ignore[arg-type]


def logits(loaded: LoadedModel, ids: torch.Tensor, rows: torch.Tensor | None = None) -> torch.Tensor:
    loaded.rows.placeholders = rows
    with torch.inference_mode():
        return loaded.model(ids, use_cache=False).logits[0]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("base") / "llama", extra=("<mask>", "<tool>"))


@pytest.fixture(scope="module")
def plain(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter as PEFT itself saves it, with random matrices."""
    torch.manual_seed(5)
    lora = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear", init_lora_weights=False)
    folder = tmp_path_factory.mktemp("plain")
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora).save_pretrained(folder)
    return folder


@pytest.fixture
def gated(plain: Path, tmp_path: Path) -> Path:
    """The same matrices, gated, with a table of three placeholder embeddings."""
    return save_gated(plain, tmp_path / "gated", BaseRecord(name="llama"))


def save_gated(plain: Path, folder: Path, base: BaseRecord, width: int = 32) -> Path:
    record = AdapterRecord(kind=AdapterKind.GATED, base=base, placeholder="<tool>", block_size=4)
    tensors = load_file(plain / "adapter_model.safetensors")
    save_adapter(folder, tensors, record, rank=RANK, alpha=ALPHA, placeholder=torch.randn(3, width))
    return folder


def test_ungated_equals_peft(base: Path, plain: Path) -> None:
    ids = torch.tensor([[1, 2, 3, 4]])
    loaded = load_tiny(base, plain)
    assert loaded.adapter is AdapterKind.UNGATED
    peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), plain).eval()
    with torch.inference_mode():
        expected = peft(ids).logits[0]
    assert torch.allclose(logits(loaded, ids), expected, atol=1e-4)
    assert not torch.allclose(logits(load_tiny(base, None), ids), expected, atol=1e-2)


def test_gated_on_every_row_equals_peft(base: Path, plain: Path, gated: Path) -> None:
    ids = torch.tensor([[1, 2, 3, 4]])
    everywhere = logits(load_tiny(base, gated), ids, torch.arange(4))
    assert torch.allclose(everywhere, logits(load_tiny(base, plain), ids), atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gated_leaves_earlier_rows_bit_identical(base: Path, gated: Path, dtype: str) -> None:
    stock, loaded = load_tiny(base, None, dtype=dtype), load_tiny(base, gated, dtype=dtype)
    ids = torch.arange(1, 13)[None]
    expected = logits(stock, ids)
    assert torch.equal(logits(loaded, ids), expected)
    for first in range(1, 12):
        found = logits(loaded, ids, torch.arange(first, 12))
        assert torch.equal(found[:first], expected[:first])
        assert not torch.equal(found[first], expected[first])


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(rows=st.sets(st.integers(0, 8)))
def test_one_gated_layer_touches_named_rows_alone(base: Path, gated: Path, rows: set[int]) -> None:
    loaded = load_tiny(base, gated)
    layer = loaded.model.model.layers[0].mlp.up_proj
    x = torch.randn(1, 9, 32)
    loaded.rows.placeholders = None
    clean = layer(x)
    loaded.rows.placeholders = torch.tensor(sorted(rows), dtype=torch.int64)
    changed = (layer(x) != clean).any(-1)[0]
    assert set(changed.nonzero().flatten().tolist()) == rows


def test_round_trip_of_the_folder(base: Path, plain: Path, gated: Path) -> None:
    adapter = read_adapter(str(gated))
    assert adapter.record is not None
    assert (adapter.record.placeholder_rows, adapter.record.block_size, adapter.settings.scale) == (3, 4, 3.0)
    assert all(torch.equal(t, adapter.tensors()[n]) for n, t in load_file(plain / "adapter_model.safetensors").items())
    loaded = load_tiny(base, gated)
    assert loaded.placeholder_table is not None
    assert loaded.placeholder_table.shape == (3, 32)
    assert loaded.info.tokenizer.convert_ids_to_tokens(loaded.info.placeholder_id) == "<tool>"
    peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), gated)  # PEFT reads it as it is
    assert torch.allclose(
        peft.eval()(torch.tensor([[1, 2]])).logits[0], logits(load_tiny(base, plain), torch.tensor([[1, 2]])), atol=1e-4
    )


def test_a_folder_is_replaced_as_a_whole(gated: Path) -> None:
    record = AdapterRecord(kind=AdapterKind.UNGATED, base=BaseRecord(name="llama"))
    save_adapter(gated, read_adapter(str(gated)).tensors(), record, rank=RANK, alpha=ALPHA)
    assert not (gated / "placeholder.safetensors").exists()
    assert [path.name for path in gated.parent.iterdir()] == ["gated"]


def refusal(base: Path | str, adapter: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_tiny(base, adapter)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_incomplete_or_damaged_folders(base: Path, gated: Path) -> None:
    assert "check the path" in refusal(base, gated / "nowhere")
    (gated / "prove.json").write_text('{"kind": "gated", "base": {"name": "x"}, "ranks": 3}')
    assert "ranks" in refusal(base, gated)
    (gated / "prove.json").unlink()
    weights = gated / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])
    assert "cannot be read" in refusal(base, gated)
    weights.unlink()
    assert "adapter_model.safetensors" in refusal(base, gated)


@pytest.mark.parametrize("kind", ["gated", "plain"])
def test_adapter_of_another_architecture(kind: str, plain: Path, gated: Path, base: Path, tmp_path: Path) -> None:
    shallow = save_llama(tmp_path / "shallow", layers=1, extra=("<tool>",))
    assert "layers.1" in refusal(shallow, {"gated": gated, "plain": plain}[kind])


def test_matrices_and_placeholders_of_another_size(base: Path, plain: Path, gated: Path, tmp_path: Path) -> None:
    path = gated / "adapter_model.safetensors"
    tensors = load_file(path)
    save_file(tensors | {next(n for n in tensors if "lora_A" in n): torch.zeros(RANK, 7)}, path)
    assert "another size" in refusal(base, gated)
    assert "dimensions" in refusal(base, save_gated(plain, tmp_path / "wide", BaseRecord(name="llama"), width=40))


def test_features_that_cannot_be_gated(base: Path, gated: Path) -> None:
    path = gated / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"use_dora": True}))
    assert "DoRA" in refusal(base, gated)


@pytest.mark.model
def test_adapter_of_another_base(plain: Path, tmp_path: Path) -> None:
    other = save_gated(plain, tmp_path / "other", BaseRecord(name="somebody/else"))
    assert "'somebody/else'" in refusal("smollm2-135m-instruct", other)
    older = save_gated(plain, tmp_path / "older", BaseRecord(name="smollm2-135m-instruct", revision="0123"))
    assert "another revision" in refusal("smollm2-135m-instruct", older)


def test_deterministic_mode_covers_the_adapter(base: Path, gated: Path) -> None:
    """A placeholder row has the same bits whether 1 or 20 placeholder rows stand beside it."""
    loaded = load_tiny(base, gated, dtype="bfloat16")
    make_deterministic(loaded.model)
    layer = loaded.model.model.layers[0].mlp.up_proj
    x = torch.randn(1, 24, 32, dtype=torch.bfloat16)
    loaded.rows.placeholders = torch.arange(2, 22)
    together = layer(x)
    for row in (2, 9, 21):
        loaded.rows.placeholders = torch.tensor([row])
        assert torch.equal(layer(x)[0, row], together[0, row])
