"""`prove distill` on a tiny checkpoint."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import Result
from transformers import AutoTokenizer
from typer.testing import CliRunner

from services.cli.main import app
from tests.services.cli.chat_model import save_chat_model, write_questions

END = 258


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("model"))


def arguments(model: Path, data: Path, out: Path, *more: str) -> list[str]:
    settings = ("--checkpoint", model, "--device", "cpu", "--dtype", "float32", "--concurrency", "3")
    return [str(item) for item in ("distill", "--data", data, "--out", out, *settings, *more)]


def invoke(*given: object) -> Result:
    return CliRunner().invoke(app, arguments(*given))  # type: ignore[arg-type]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_answers_are_written_once_and_added_to(model: Path, tmp_path: Path) -> None:
    data, out = write_questions(tmp_path / "q.jsonl", 7), tmp_path / "new" / "answers.jsonl"
    result = invoke(model, data, out, "--max-tokens", "12", "--limit", "4")
    assert result.exit_code == 0, result.output
    assert "4 answers added" in " ".join(result.stderr.split())
    assert "4 of 4 prompts" in result.stderr
    first = lines(out)
    result = invoke(model, data, out, "--max-tokens", "12")
    assert "3 answers added" in " ".join(result.stderr.split())
    assert "7 of 7 prompts" in result.stderr
    assert lines(out)[:4] == first
    decode = AutoTokenizer.from_pretrained(model).decode
    assert {decode(line["prompt"]) for line in lines(out)} == {
        f"u:what is {i} + {i * 7 % 10}?<|im_end|>a:" for i in range(7)
    }
    for line in lines(out):
        answer = line["answer"]
        assert isinstance(answer, list)
        assert END not in answer[:-1]
        assert len(answer) == 12 or answer[-1] == END
    assert "0 answers added" in " ".join(invoke(model, data, out, "--max-tokens", "12").stderr.split())
    result = invoke(model, data, out, "--max-tokens", "13")
    assert result.exit_code == 1
    assert "name another file" in " ".join(result.stderr.split())


def test_bad_lines_are_named(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "q.jsonl"
    for line, complaint in (
        ({"prompt": [1, 300]}, "line 2: `prompt` holds 300"),
        ({"text": "x"}, "line 2: no `prompt`"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "line 2: `messages[0].role`"),
    ):
        data.write_text(json.dumps({"prompt": "a"}) + "\n" + json.dumps(line) + "\n")
        result = invoke(model, data, tmp_path / "out.jsonl")
        assert result.exit_code == 1
        assert complaint in " ".join(result.stderr.split())
        assert "Traceback" not in result.output
    assert not (tmp_path / "out.jsonl").exists()


def test_prompts_that_do_not_fit_are_named_and_left_out_only_on_request(model: Path, tmp_path: Path) -> None:
    data, out = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    data.write_text("".join(json.dumps({"prompt": "x" * size}) + "\n" for size in (5, 200, 6, 120)))
    result = invoke(model, data, out, "--max-tokens", "20")
    assert result.exit_code == 1
    assert "lines 2, 4: more than 108 prompt tokens" in " ".join(result.stderr.split())
    assert "--skip-long" in result.stderr
    assert not out.exists()
    result = invoke(model, data, out, "--max-tokens", "20", "--skip-long")
    assert result.exit_code == 0, result.output
    assert "left out: " in result.stderr
    assert "lines 2, 4" in " ".join(result.stderr.split())
    assert len(lines(out)) == 2


INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs that a shell runs in the background ignore it
runpy.run_module("services.cli.main", run_name="__main__", alter_sys=True)
"""


def test_ctrl_c_keeps_whole_lines_and_the_rest_is_done_later(model: Path, tmp_path: Path) -> None:
    data, out, whole = write_questions(tmp_path / "q.jsonl", 60), tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    command = arguments(model, data, out, "--max-tokens", "60", "--concurrency", "1")  # slow enough to be cut
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *command], stderr=subprocess.PIPE, text=True, env=environment
    )
    while process.poll() is None and not (out.exists() and out.stat().st_size):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "the same command goes on" in " ".join(errors.split())
    assert "Traceback" not in errors
    assert 0 < len(lines(out)) < 60
    for path in (out, whole):
        assert invoke(model, data, path, "--max-tokens", "60").exit_code == 0
    key = json.dumps
    assert sorted(lines(out), key=key) == sorted(lines(whole), key=key)
