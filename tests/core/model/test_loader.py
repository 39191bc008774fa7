"""Loading of folders: what is read from them, and what is refused with which words."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from prove_core.config import ModelConfig
from prove_core.errors import CheckpointError, RequestError, UnsupportedModel
from prove_core.model.info import CheckpointInfo, read_info
from prove_core.model.loader import LoadedModel, load
from prove_core.types import DecodingParams, Mode
from tests.core.model.checkpoints import MASK, save_llama, save_mars


def load_tiny(folder: Path, **options: object) -> LoadedModel:
    options = {"dtype": "float32", "device": "cpu"} | options
    return load(ModelConfig(checkpoint=str(folder), **options), attention="eager")  # type: ignore[arg-type]


def refusal(kind: type[Exception], folder: Path | str, **options: object) -> str:
    with pytest.raises(kind) as caught:
        load_tiny(folder, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return save_llama(tmp_path / "llama")


def test_facts_of_a_plain_folder(llama: Path) -> None:
    loaded = load_tiny(llama)
    info = loaded.info
    assert (info.vocab_size, info.eos_ids, info.context_length) == (259, (258,), 128)
    assert info.placeholder_id is None
    assert info.banned_ids == tuple(range(259, 272))
    assert (loaded.adapter, loaded.placeholder_table, loaded.rows.placeholders) == (None, None, None)
    assert not loaded.model.training
    assert loaded.model.dtype == torch.float32
    assert read_info(ModelConfig(checkpoint=str(llama))).banned_ids == info.banned_ids


def test_dtype_and_max_length(llama: Path) -> None:
    loaded = load_tiny(llama, dtype="bfloat16", max_length=64)
    assert (loaded.model.dtype, loaded.info.context_length) == (torch.bfloat16, 64)
    assert "128 positions" in refusal(CheckpointError, llama, max_length=129)


def test_several_end_tokens(llama: Path) -> None:
    path = llama / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": [256, 258]}))
    assert load_tiny(llama).info.eos_ids == (256, 258)


def test_mars_checkpoint_loads_as_qwen2(tmp_path: Path) -> None:
    loaded = load_tiny(save_mars(tmp_path / "mars"))
    info = loaded.info
    assert type(loaded.model).__name__ == "Qwen2ForCausalLM"
    assert info.tokenizer.convert_ids_to_tokens(info.placeholder_id) == MASK
    assert set(info.eos_ids) == {256, 258}
    assert info.vocab_size == 260
    assert info.banned_ids == (259, *range(260, 272))  # the placeholder and the logits without a token


def test_mars_checkpoint_without_its_mask_token(tmp_path: Path) -> None:
    assert MASK in refusal(CheckpointError, save_mars(tmp_path / "mars", mask=False))


@pytest.mark.parametrize(
    ("extra", "chosen"),
    [
        (("<mask>",), "<mask>"),
        (("<|reserved_special_token_3|>", "<|reserved_special_token_9|>"), "<|reserved_special_token_3|>"),
        (("<unused0>",), "<unused0>"),
        (("<tool>",), None),
    ],
)
def test_choice_of_placeholder(tmp_path: Path, extra: tuple[str, ...], chosen: str | None) -> None:
    info = load_tiny(save_llama(tmp_path / "m", extra=extra)).info
    found = None if info.placeholder_id is None else info.tokenizer.convert_ids_to_tokens(info.placeholder_id)
    assert found == chosen
    assert (info.placeholder_id in info.banned_ids) == (chosen is not None)


def test_placeholder_by_name(tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "m", extra=("<tool>", "<mask>"))
    assert load_tiny(folder, placeholder="<tool>").info.placeholder_id == 259
    assert "'<none>'" in refusal(CheckpointError, folder, placeholder="<none>")


def test_first_layers_alone(tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "m", layers=3)
    short, whole = load_tiny(folder, layers=2).model, load_tiny(folder).model
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        hidden = whole(ids, output_hidden_states=True).hidden_states[2]  # after two layers, before the norm
        expected = whole.lm_head(whole.model.norm(hidden))
        assert torch.equal(short(ids).logits, expected)
    assert "3 layers" in refusal(CheckpointError, folder, layers=4)


@pytest.mark.parametrize("layers", [(0, 2), (1,), (0, 1, 2), (1, 2)])
def test_chosen_layers_alone(tmp_path: Path, layers: tuple[int, ...]) -> None:
    """Against the whole model whose other layers add nothing: what they write to the residual stream is zeroed."""
    folder = save_llama(tmp_path / "m", layers=3)
    short, whole = load_tiny(folder, layers=layers), load_tiny(folder).model
    assert short.layers == layers
    assert short.model.config.num_hidden_layers == len(layers)
    ids = torch.tensor([[5, 6, 7]])
    for index in set(range(3)) - set(layers):
        whole.model.layers[index].self_attn.o_proj.weight.zero_()
        whole.model.layers[index].mlp.down_proj.weight.zero_()
    with torch.inference_mode():
        torch.testing.assert_close(short.model(ids).logits, whole(ids).logits)
        cached = short.model(ids, use_cache=True).past_key_values
    assert len(cached.layers) == len(layers), "layers number their KV from 0"


@pytest.mark.parametrize("layers", [(2, 0), (1, 1), (), (0, 3)])
def test_layers_that_cannot_be_kept(tmp_path: Path, layers: tuple[int, ...]) -> None:
    assert "layer" in refusal(CheckpointError, save_llama(tmp_path / "m", layers=3), layers=layers)


def test_missing_and_wrong_places(llama: Path, tmp_path: Path) -> None:
    assert "no checkpoint folder" in refusal(CheckpointError, tmp_path / "nowhere")
    assert "give the folder" in refusal(CheckpointError, llama / "config.json")
    (llama / "config.json").rename(llama / "adapter_config.json")
    assert "as `adapter`" in refusal(CheckpointError, llama)
    (llama / "adapter_config.json").unlink()
    assert "no config.json" in refusal(CheckpointError, llama)


def test_misspelt_built_in_name_suggests_the_right_one() -> None:
    assert "smollm2-135m-instruct" in refusal(CheckpointError, "smollm2-135m-instuct")


def test_hub_name_without_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "model hub" in refusal(CheckpointError, "nobody/nothing-of-this-name")


def test_missing_weights(llama: Path) -> None:
    (llama / "model.safetensors").unlink()
    assert "weights" in refusal(CheckpointError, llama)


def test_truncated_weights(llama: Path) -> None:
    path = llama / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "weights" in refusal(CheckpointError, llama)


def test_missing_tensors_are_never_made_up(llama: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(llama)
    tensors = {k: v for k, v in model.state_dict().items() if "layers.1.mlp" not in k and "lm_head" not in k}
    model.save_pretrained(llama, state_dict=tensors)
    assert "lack 3 tensors" in refusal(CheckpointError, llama)


def test_weights_of_other_sizes(llama: Path, tmp_path: Path) -> None:
    other = save_llama(tmp_path / "other", width=300)
    shutil.copy(other / "config.json", llama)
    refusal(CheckpointError, llama)


def test_missing_tokenizer(llama: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (llama / name).unlink()
    assert "tokenizer" in refusal(CheckpointError, llama)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"model_type": "llama", "hidden_size": "x"}'])
def test_invalid_configuration(llama: Path, text: str) -> None:
    (llama / "config.json").write_text(text)
    refusal((CheckpointError, UnsupportedModel), llama)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model_type", "words"), [("no-such-type", "'no-such-type'"), ("t5", "encoder-decoder"), ("vit", "")]
)
def test_architectures_that_are_not_served(llama: Path, model_type: str, words: str) -> None:
    (llama / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert words in refusal(UnsupportedModel, llama)


def test_device_that_is_not_there(llama: Path) -> None:
    assert "cuda:99" in refusal(CheckpointError, llama, device="cuda:99")
    assert "auto" in refusal(CheckpointError, llama, device="gpu")


@pytest.mark.parametrize("mode", ["mars", "prove", "lossless"])
def test_a_checkpoint_without_placeholder_refuses_blocks_and_nothing_else(mode: str) -> None:
    info = CheckpointInfo("plain", None, 10, (1,), 100, None, ())  # type: ignore[arg-type]
    with pytest.raises(RequestError, match="placeholder") as refused:
        info.check_proposes(DecodingParams(Mode(mode), block_size=2))
    assert refused.value.param == "decoding.mode"
    info.check_proposes(DecodingParams(Mode(mode), block_size=1))
    info.check_proposes(DecodingParams(Mode.AR))
    info.check_proposes(DecodingParams(Mode.SPECULATIVE))


class Noted:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int | None]] = []
        self.done = 0

    def stage(self, name: str, total: int | None = None) -> None:
        self.stages.append((name, total))
        self.done = 0

    def advance(self, amount: int) -> None:
        self.done += amount


def test_loading_reports_how_far_it_is(llama: Path) -> None:
    progress = Noted()
    loaded = load(ModelConfig(checkpoint=str(llama), dtype="float16", device="cpu"), progress, attention="eager")
    name, total = progress.stages[-1]
    assert (name, total) == (f"loading {llama} to cpu", len(list(loaded.model.parameters())))
    assert progress.done == total
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float16}
