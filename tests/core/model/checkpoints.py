"""Builders of small checkpoint folders on disk: random weights, a byte-level tokenizer of a few hundred tokens."""

import json
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MASK = "<|mask|>"


def save_tokenizer(folder: Path, *, extra: tuple[str, ...] = (), swap: bool = False) -> int:
    """A tokenizer of 256 bytes, the chat tokens and `extra`; `swap` exchanges two ids. Returns its length."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if swap:
        alphabet[10], alphabet[11] = alphabet[11], alphabet[10]
    backend = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in (*SPECIALS, *extra)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.save_pretrained(folder)
    return len(tokenizer)


def save_llama(folder: Path, *, width: int = 272, layers: int = 2, **tokenizer: object) -> Path:
    """A tiny random Llama of `width` embedding rows with a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(folder, **tokenizer)  # type: ignore[arg-type]
    torch.manual_seed(3)
    config = LlamaConfig(**_sizes(width, layers))
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def save_mars(folder: Path, *, width: int = 272, mask: bool = True) -> Path:
    """Laid out like a released MARS checkpoint: Qwen2 weights under a model type of its own, code not included."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(folder, extra=(MASK,) if mask else ())
    torch.manual_seed(4)
    Qwen2ForCausalLM(Qwen2Config(**_sizes(width, 2))).save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    raw = json.loads((folder / "config.json").read_text())
    raw |= {
        "model_type": "a2d-qwen2",
        "architectures": ["A2DQwen2LMHeadModel"],
        "auto_map": {"AutoConfig": "modeling_a2d.A2DQwen2Config"},
        "eos_token_id": 258,
    }
    (folder / "config.json").write_text(json.dumps(raw))
    return folder


def _sizes(width: int, layers: int) -> dict[str, object]:
    return {
        "vocab_size": width,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "initializer_range": 0.2,
        "bos_token_id": None,
        "eos_token_id": 258,
        "pad_token_id": None,
        "tie_word_embeddings": True,
    }
