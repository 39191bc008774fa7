import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from prove_core.errors import DataError
from prove_core.text.data import DataTokenizer
from prove_core.training.prompts import NumberedPrompt, read_prompt_ids, too_long
from tests.core.model.checkpoints import save_tokenizer


@pytest.fixture
def text(tmp_path: Path) -> DataTokenizer:
    save_tokenizer(tmp_path / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    return DataTokenizer(tokenizer, (258,))


def test_prompts_keep_their_lines_and_those_beyond_the_limit_are_not_read(tmp_path: Path, text: DataTokenizer) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"prompt": "ab"}\n\n{"prompt": [7]}\n{"oops": 1}\n')
    first, second = read_prompt_ids(path, text, 259, limit=2)
    assert (first.line, len(first.ids)) == (1, 2)
    assert second == NumberedPrompt(3, (7,))
    with pytest.raises(DataError, match=r"q\.jsonl, line 4"):
        read_prompt_ids(path, text, 259)
    path.write_text(json.dumps({"prompt": [259]}))
    with pytest.raises(DataError, match="line 1: `prompt` holds 259"):
        read_prompt_ids(path, text, 259)
    path.write_text("\n")
    with pytest.raises(DataError, match="no prompts"):
        read_prompt_ids(path, text, 259)


def test_lines_of_long_prompts_in_words() -> None:
    prompts = [NumberedPrompt(line, (0,) * line) for line in range(1, 30)]
    assert too_long(prompts, 29) is None
    assert too_long(prompts, 28) == "line 29: more than 28 prompt tokens"
    assert too_long(prompts, 27) == "lines 28, 29: more than 27 prompt tokens"
    many = too_long(prompts, 9)
    assert many == "lines 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 and 10 more: more than 9 prompt tokens"
