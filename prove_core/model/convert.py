"""GGUF to a transformers folder: bf16 safetensors, configuration, tokenizer, chat template."""

import io
from contextlib import redirect_stderr
from pathlib import Path

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedTokenizerFast

from prove_core.model.progress import Progress
from prove_core.model.quiet import quiet


def convert_smollm2(gguf: Path, target: Path, progress: Progress) -> None:
    """Write SmolLM2, stored as `gguf`, to the folder `target` as transformers would have saved the original."""
    with quiet(), redirect_stderr(io.StringIO()):  # the GGUF reader draws a bar that no setting hides
        progress.stage("converting the weights to bfloat16")
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            dtype=torch.bfloat16,
            quantization_config=GgufConfig(dequantize=True),
        )
        model.save_pretrained(target)
        progress.stage("converting the tokenizer")
        tokenizer = AutoTokenizer.from_pretrained(
            gguf.parent, gguf_file=gguf.name, model_max_length=model.config.max_position_embeddings
        )
        _split_digits(tokenizer)
        tokenizer.save_pretrained(target)


def _split_digits(tokenizer: PreTrainedTokenizerFast) -> None:
    """SmolLM2 splits at every digit before anything else; GGUF names that rule (`smollm`) but transformers drops it."""
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
