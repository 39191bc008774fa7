import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from prove_core.errors import DataError
from prove_core.text.data import DataTokenizer
from prove_core.training.dataset import Example, read_examples
from tests.core.model.checkpoints import save_tokenizer


def write(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return path


def test_reads_examples_of_several_files_and_skips_blank_lines(tmp_path: Path) -> None:
    first = write(tmp_path / "a.jsonl", {"prompt": [1], "answer": [2, 3, 4], "kind": "x"}, "", "   ")
    second = write(tmp_path / "b.jsonl", {"prompt": [5, 6], "answer": [7, 8, 9, 10]})
    assert read_examples([first, second], vocabulary=11) == [Example((1,), (2, 3, 4)), Example((5, 6), (7, 8, 9, 10))]


def test_line_separators_inside_strings_do_not_shift_line_numbers(tmp_path: Path) -> None:
    text = '{"prompt": [1], "answer": [2, 3, 4], "text": "a\u2028b\x85c"}'
    path = write(tmp_path / "a.jsonl", text, "{")
    with pytest.raises(DataError, match="line 2"):
        read_examples([path], vocabulary=11)


def test_short_answers_are_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"prompt": [1], "answer": [2]}, {"prompt": [1], "answer": [2, 3, 4]})
    assert len(read_examples([path], vocabulary=11)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[1, 2]",
        "null",
        {"prompt": [1]},
        {"prompt": [], "answer": [1, 2, 3]},
        {"prompt": "text", "answer": [1, 2, 3]},
        {"prompt": [1], "answer": [1, 2.0, 3]},
        {"prompt": [1], "answer": [1, True, 3]},
        {"prompt": [1], "answer": [1, -1, 3]},
        {"prompt": [1], "answer": [1, 11, 3]},
        "9" * 5000,
        "[" * 20000,
    ],
)
def test_a_bad_line_is_named_by_file_and_number(tmp_path: Path, line: object) -> None:
    path = write(tmp_path / "bad.jsonl", {"prompt": [1], "answer": [2, 3, 4]}, line)
    with pytest.raises(DataError, match=r"bad\.jsonl, line 2") as caught:
        read_examples([path], vocabulary=11)
    assert "\n" not in str(caught.value)


def test_missing_binary_and_empty_files_are_errors(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").write_text("")
    for name in ("missing", "binary", "empty"):
        with pytest.raises(DataError, match=name):
            read_examples([tmp_path / name], vocabulary=11)


def test_text_is_tokenized_and_the_line_of_a_refused_chat_named(tmp_path: Path) -> None:
    save_tokenizer(tmp_path / "tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "tokenizer")
    tokenizer.chat_template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}{{ raise_exception('one turn only') }}{% endif %}"
        "<{{ m.content }}>{% endfor %}"
    )
    text = DataTokenizer(tokenizer, (258,))
    good = write(tmp_path / "a.jsonl", {"prompt": "ab", "answer": "xyz"}, {"prompt": [5], "answer": [1, 2, 3]})
    first, second = read_examples([good], vocabulary=259, text=text)
    assert (tokenizer.decode(first.prompt), tokenizer.decode(first.answer)) == ("<ab>", "xyz<|im_end|>")
    assert second == Example((5,), (1, 2, 3))
    messages = [{"role": role, "content": "s"} for role in ("user", "assistant", "user")]
    bad = write(tmp_path / "b.jsonl", {"prompt": "ab", "answer": "xyz"}, {"messages": messages, "answer": "xyz"})
    with pytest.raises(DataError, match=r"b\.jsonl, line 2: .*one turn only"):
        read_examples([bad], vocabulary=259, text=text)
    with pytest.raises(DataError, match=r"a\.jsonl, line 1: .*token ids here"):
        read_examples([good], vocabulary=259)
