"""A tiny chat checkpoint on disk, and questions that fit its context of 128 tokens."""

import json
from pathlib import Path

from transformers import AutoTokenizer

from tests.core.model.checkpoints import MASK, save_llama

TEMPLATE = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)


def save_chat_model(folder: Path) -> Path:
    """A tiny random Llama with a byte tokenizer, a chat template and a mask token."""
    save_llama(folder, extra=(MASK,))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = TEMPLATE
    tokenizer.mask_token = MASK
    tokenizer.save_pretrained(folder)
    return folder


def write_questions(path: Path, count: int) -> Path:
    """`count` lines with `question`."""
    path.write_text("".join(json.dumps({"question": f"what is {i} + {i * 7 % 10}?"}) + "\n" for i in range(count)))
    return path
