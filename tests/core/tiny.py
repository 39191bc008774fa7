"""Tiny random models of several families, and the parts around them, for tests of anything above the model."""

from collections.abc import Callable, Sequence

import torch
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from prove_core.attention.choose import choose_attention
from prove_core.kv.storage import KVStorage
from prove_core.model.probe import probe
from prove_core.model.recall import Recall
from prove_core.model.rows import RowMask
from prove_core.model.runner import ModelRunner
from prove_core.model.sequential import SequentialHead
from prove_core.model.window import Window

VOCABULARY = 192  # whole vectors, so that even a soft cap on logits can be deterministic
PAGE_SIZE = 4

_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
    "tie_word_embeddings": False,
}


def _llama() -> PreTrainedModel:
    return LlamaForCausalLM(LlamaConfig(**_COMMON))


def _qwen2() -> PreTrainedModel:
    return Qwen2ForCausalLM(Qwen2Config(**_COMMON))


def _qwen3() -> PreTrainedModel:
    return Qwen3ForCausalLM(Qwen3Config(**_COMMON, head_dim=24))


def _mistral() -> PreTrainedModel:
    return MistralForCausalLM(MistralConfig(**_COMMON, sliding_window=7))


def _gemma2() -> PreTrainedModel:
    softcaps = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 8.0}
    return Gemma2ForCausalLM(
        Gemma2Config(**_COMMON, head_dim=16, sliding_window=6, query_pre_attn_scalar=16, **softcaps)
    )


def _gemma3() -> PreTrainedModel:
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    return Gemma3ForCausalLM(
        Gemma3TextConfig(**_COMMON, head_dim=16, sliding_window=5, query_pre_attn_scalar=16, layer_types=kinds)
    )


FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": _llama,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "mistral": _mistral,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
}


def tiny_model(family: str = "llama", *, seed: int = 1, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """A tiny random model (vocabulary `VOCABULARY`, context 512), weights wide enough for varied argmaxes."""
    torch.manual_seed(seed)
    return FAMILIES[family]().to(dtype).eval()


def tiny_runner(
    model: PreTrainedModel,
    *,
    pages: int = 128,
    page_size: int = PAGE_SIZE,
    banned: Sequence[int] = (),
    placeholder_id: int | None = VOCABULARY - 1,
    placeholder_table: torch.Tensor | None = None,
    rows: RowMask | None = None,
    sequential: SequentialHead | None = None,
    recall: Recall | None = None,
    deterministic: bool = False,
) -> ModelRunner:
    """A runner over `model` with a KV storage of its own. Switches the model to our attention."""
    specs = probe(model)
    storage = KVStorage(
        [spec.shape for spec in specs], pages=pages, page_size=page_size, dtype=model.dtype, device="cpu"
    )
    return ModelRunner(
        model,
        specs,
        storage,
        choose_attention("torch", storage, specs, deterministic=deterministic),
        banned=banned,
        placeholder_id=placeholder_id,
        placeholder_table=placeholder_table,
        sequential=sequential,
        recall=recall,
        rows=rows,
        deterministic=deterministic,
    )


def greedy(
    runner: ModelRunner, prompt: Sequence[int], new_tokens: int, *, pages: Sequence[int], chunk: int = 10**9
) -> list[int]:
    """AR by windows: the prompt in chunks of `chunk`, then token by token. Returns the new tokens."""
    tokens = list(prompt)
    cached = 0
    while len(tokens) < len(prompt) + new_tokens:
        end = min(len(tokens), cached + chunk)
        window = Window(tokens[cached:end], cached, pages, logits=int(end == len(tokens)))
        output = runner.run([window]).outputs[0]
        cached = end
        tokens.extend(output.argmax)
    return tokens[len(prompt) :]
