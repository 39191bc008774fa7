import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from prove_core.errors import CheckpointError, DataError
from prove_core.text.data import Chat, DataTokenizer, Prompt, ends_first, parse_answer, parse_prompt
from prove_core.text.jsonl import parse_file
from prove_core.text.prompt import Message
from tests.core.model.checkpoints import save_tokenizer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
END_OF_TEXT, START, END = 256, 257, 258


@pytest.fixture
def tokenizer(tmp_path: Path) -> PreTrainedTokenizerBase:
    save_tokenizer(tmp_path / "tokenizer")
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    tokenizer.chat_template = CHATML
    return tokenizer


@pytest.mark.parametrize(
    ("record", "prompt"),
    [
        ({"prompt": "a"}, Chat((Message("user", "a"),))),
        ({"question": "a", "answer": "#### 4"}, Chat((Message("user", "a"),))),
        ({"prompt": [0, 5]}, (0, 5)),
        ({"question": None, "prompt": "a"}, Chat((Message("user", "a"),))),
        (
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u", "name": None}]},
            Chat((Message("system", "s"), Message("user", "u"))),
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": x} for x in "ab"]}]},
            Chat((Message("user", "a\nb"),)),
        ),
    ],
)
def test_forms_of_a_prompt(record: dict[str, object], prompt: Prompt) -> None:
    assert parse_prompt(record) == prompt


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ({}, "no `prompt`"),
        ({"prompt": " "}, "`prompt` is empty"),
        ({"question": ""}, "`question` is empty"),
        ({"question": [1]}, "`question` must be text"),
        ({"prompt": []}, "non-empty list of token ids"),
        ({"prompt": [1, True]}, "not of True"),
        ({"prompt": {"a": 1}}, "text or a non-empty list"),
        ({"messages": []}, "non-empty list"),
        ({"messages": "x"}, "non-empty list"),
        ({"messages": ["x"]}, r"messages\[0\]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, r"messages\[0\]\.role"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\]\.content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, r"messages\[0\]\.content"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [1]}]}, "tool_calls"),
        ({"messages": [{"role": "user", "content": "x", "name": 3}]}, "name"),
        ({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]}, "under `answer`"),
    ],
)
def test_what_is_no_prompt_is_refused_by_name(record: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_prompt(record)


@pytest.mark.parametrize("value", [None, "", [], 3, [1.0], ["a"]])
def test_what_is_no_answer_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="answer"):
        parse_answer({"answer": value})


def test_text_becomes_a_rendered_prompt_and_an_answer_with_its_end(tokenizer: PreTrainedTokenizerBase) -> None:
    data = DataTokenizer(tokenizer, (END_OF_TEXT, END))
    prompt = data.prompt(Chat((Message("user", "hi"),)))
    assert tokenizer.decode(prompt) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    answer = data.answer("yes")
    assert (tokenizer.decode(answer[:-1]), answer[-1]) == ("yes", END)
    assert data.prompt((1, 2)) == (1, 2)
    assert data.answer((1, 2)) == (1, 2), "ids are complete"


def test_special_tokens_spelt_in_an_answer_stay_text(tokenizer: PreTrainedTokenizerBase) -> None:
    answer = DataTokenizer(tokenizer, (END,)).answer("a<|im_end|>b")
    assert answer.count(END) == 1
    assert answer[-1] == END
    assert tokenizer("a<|im_end|>b")["input_ids"].count(END) == 1, "the tokenizer itself is as it was"


def test_the_end_is_the_one_of_the_chat_template(tokenizer: PreTrainedTokenizerBase) -> None:
    assert ends_first(tokenizer, (END_OF_TEXT, END)) == (END, END_OF_TEXT)
    assert ends_first(tokenizer, (END_OF_TEXT, START)) == (END_OF_TEXT, START)
    assert ends_first(tokenizer, ()) == ()
    tokenizer.chat_template = None
    assert ends_first(tokenizer, (END_OF_TEXT, END)) == (END_OF_TEXT, END)
    with pytest.raises(CheckpointError, match="chat template"):
        DataTokenizer(tokenizer, (END,)).prompt(Chat((Message("user", "hi"),)))


def test_lines_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + '{"x": "a\u2028b\x85"}\n\n  \r\n{"x": 2}'.encode())
    assert list(parse_file(path, lambda record: record["x"])) == [(1, "a\u2028b\x85"), (4, 2)]


@pytest.mark.parametrize("line", [b"{", b"[1]", b"\xff", b'{"prompt": 3}', b"[" * 20000, b"9" * 5000])
def test_a_bad_line_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(json.dumps({"prompt": "a"}).encode() + b"\n" + line + b"\n")
    with pytest.raises(DataError, match=r"data\.jsonl, line 2: ") as caught:
        list(parse_file(path, parse_prompt))
    assert "\n" not in str(caught.value)
    assert "line 1" not in str(caught.value)
