"""`prove train` on a tiny checkpoint: from answers to something that is served."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
import yaml
from click.testing import Result
from safetensors.torch import load_file
from typer.testing import CliRunner

from prove_core.engine.build import build_engine
from prove_core.model.adapters import read_adapter
from prove_core.training.checkpoint import FILE as CHECKPOINT
from prove_core.training.config import ProposerTraining, VerifierTraining
from prove_core.training.metrics import FILE as METRICS
from prove_core.types import Mode
from services.cli.main import app
from services.config.settings import load_settings
from services.config.training_settings import as_yaml, training_settings
from services.config.yaml_config import SettingsError
from tests.services.cli.chat_model import save_chat_model, write_questions

STEPS = 20
BLOCK = ("--rank", "4", "--block-size", "4")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def answers(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `prove distill` writes."""
    folder = tmp_path_factory.mktemp("answers")
    data, out = write_questions(folder / "q.jsonl", 12), folder / "answers.jsonl"
    invoke("distill", "--data", data, "--out", out, "--checkpoint", model, "--device", "cpu", "--max-tokens", "12")
    return out


def invoke(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result


def common(kind: str, model: Path, data: Path, out: Path, steps: int = STEPS) -> list[object]:
    base: tuple[object, ...] = ("--checkpoint", model, "--device", "cpu", "--dtype", "float32")
    return ["train", kind, "--data", data, "--out", out, *base, "--steps", steps, "--batch", 2]


def words(text: str) -> str:
    return " ".join(text.split())


def metrics(folder: Path) -> list[dict[str, object]]:
    found = [json.loads(line) for line in (folder / METRICS).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("tokens_per_second", "eta_seconds")} for line in found]


@pytest.mark.parametrize("method", ["gated", "ungated", "full"])
def test_a_trained_proposer_is_served(model: Path, answers: Path, tmp_path: Path, method: str) -> None:
    out = tmp_path / "run"
    options = {"gated": BLOCK, "ungated": (*BLOCK, "--ungated"), "full": ("--full", "--block-size", "4")}[method]
    result = invoke(*common("proposer", model, answers, out), *options)
    assert f"prove serve {out / 'serve.yaml'}" in words(result.stderr)
    named = f"{out / 'model'}" if method == "full" else f"{model} --adapter {out / 'adapter'}"
    assert f"prove bench prefix --data PROMPTS.jsonl --checkpoint {named} --block-size 4" in words(result.stderr)
    assert "step 20 of 20 loss " in words(result.stderr)
    assert " L " in words(result.stderr)
    assert (out / "curve.png").read_bytes().startswith(b"\x89PNG")
    settings = load_settings(out / "serve.yaml")
    assert settings.verifier is None
    assert settings.decoding.block_size == 4
    assert settings.params().mode is Mode.AUTO, "the server's default"
    built = build_engine(settings.proposer.engine, name="trained")
    built.engine.stop()
    assert built.info is not None
    assert built.info.placeholder_id is not None
    if method == "gated":
        fitted = invoke("train", "recall", "--data", answers, "--adapter", out / "adapter", "--checkpoint", model)
        figures = dict(line.rsplit(maxsplit=1) for line in fitted.stdout.splitlines())
        record = read_adapter(str(out / "adapter")).record
        assert record is not None
        assert record.recall is not None
        assert record.recall.latest == pytest.approx(float(figures["latest"]))
        assert float(figures["prefix with"]) >= float(figures["prefix without"]), "of the data that it was fitted to"
    generated = invoke("generate", "what is 2 + 3?", "--config", out / "serve.yaml", "--max-tokens", 8)
    assert "auto" in generated.stderr


def test_a_trained_verifier_is_loaded_as_it_says(model: Path, answers: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    arguments = (*common("verifier", model, answers, out), "--layers", 1, "--rank", 4, "--no-plot")
    result = invoke(*arguments)
    assert not (out / "curve.png").exists()
    assert " L " not in words(result.stderr)
    settings = load_settings(_written(tmp_path / "verifier.yaml", result.stdout))
    assert settings.verifier is not None
    built = build_engine(settings.verifier.engine, name="trained")
    built.engine.stop()


def test_ar_training_of_a_proposer_is_a_checkpoint_for_its_blocks(model: Path, answers: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    result = invoke(*common("proposer", model, answers, first, 2), "--stage", "ar", "--no-plot")
    base = words(result.stderr).rpartition("--checkpoint ")[2].split()[0]
    invoke(*common("proposer", Path(base), answers, tmp_path / "second", 2), *BLOCK, "--no-plot")
    refused = invoke(*common("proposer", model, answers, tmp_path / "x"), "--stage", "ar", "--rank", "4", code=1)
    assert "about adapters" in words(refused.stderr)


def start(arguments: Sequence[object]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "services.cli.main", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    while process.poll() is None and not path.exists():
        time.sleep(0.01)


def test_killed_and_interrupted_runs_end_as_an_undisturbed_one(model: Path, answers: Path, tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    settings = _written(tmp_path / "settings.yaml", "checkpoint_seconds: 1.0e-6\nreport_steps: 10\n")
    options = (*BLOCK, "--config", settings, "--no-plot")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    invoke(*common("proposer", model, answers, whole, 150), *options)
    process = start([*common("proposer", model, answers, cut, 150), *options])
    wait_for(cut / CHECKPOINT, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    assert len(metrics(cut)) < 15
    process = start([*common("proposer", model, answers, cut, 150), *options])
    before = (cut / CHECKPOINT).stat().st_mtime_ns
    while process.poll() is None and (cut / CHECKPOINT).stat().st_mtime_ns == before:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "the same command goes on" in words(errors)
    assert "Traceback" not in errors
    stopped = metrics(cut)[-1]["step"]
    assert isinstance(stopped, int)
    assert stopped < 150
    invoke(*common("proposer", model, answers, cut, 150), *options)
    torch.set_num_threads(threads)
    ours, theirs = (load_file(folder / "adapter" / "adapter_model.safetensors") for folder in (cut, whole))
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
    lines = {line["step"]: line for line in metrics(cut)}
    for line in metrics(whole):
        step = line["step"]
        assert isinstance(step, int)
        if not 0 <= step - stopped < 10:  # the report after a stop in between is of fewer steps
            assert lines[step] == line
    refused = invoke(*common("proposer", model, answers, cut, 151), *options, code=1)
    assert "choose another folder" in words(refused.stderr)


def test_bad_input_is_a_line(model: Path, answers: Path, tmp_path: Path) -> None:
    bad = _written(tmp_path / "bad.jsonl", '{"prompt": [1], "answer": [1, 2, 3]}\n{"prompt": [1]}\n')
    result = invoke(*common("proposer", model, bad, tmp_path / "run"), code=1)
    assert "bad.jsonl, line 2: `answer` must be" in words(result.stderr)
    unknown = _written(tmp_path / "a.yaml", "optimizer: {stepz: 3}\n")
    cases: tuple[tuple[tuple[object, ...], str], ...] = (
        (("--ungated", "--full"), "exclude each other"),
        (("--config", tmp_path / "none.yaml"), "none.yaml: cannot be read"),
        (("--config", unknown), "a.yaml: optimizer.stepz: unknown key"),
        (("--config", _written(tmp_path / "b.yaml", "[1]\n")), "b.yaml: must be a mapping"),
        (("--lr", "-1"), "options: optimizer.lr: "),
        (("--start", tmp_path), "it is no PEFT (LoRA) adapter"),
        (("--device", "cuda:99"), "cuda:99"),
    )
    for index, (options, complaint) in enumerate(cases):
        result = invoke(*common("proposer", model, answers, tmp_path / str(index)), *options, code=1)
        assert complaint in words(result.stderr)
    assert "--data and --out are needed" in words(invoke("train", "proposer", code=1).stderr)
    _written(tmp_path / "file", "x")
    assert "is a file" in words(invoke(*common("proposer", model, answers, tmp_path / "file"), code=1).stderr)


@pytest.mark.parametrize("kind", [ProposerTraining, VerifierTraining])
@pytest.mark.parametrize("method", [None, "full"])
def test_printed_settings_are_the_same_settings(
    tmp_path: Path, kind: type[ProposerTraining | VerifierTraining], method: str | None
) -> None:
    options = {"method": method, "optimizer.steps": 7, "model.layers": None}
    settings = training_settings(kind, None, options)
    assert settings.optimizer.steps == 7
    assert settings.optimizer.lr == (1e-5 if method else 1e-3)
    assert training_settings(kind, _written(tmp_path / "all.yaml", as_yaml(settings)), {}) == settings
    name = "proposer" if kind is ProposerTraining else "verifier"
    printed = invoke("train", name, "--print-config", *(["--full"] if method else []), "--steps", 7).stdout
    assert yaml.safe_load(printed) == yaml.safe_load(as_yaml(settings))


def test_options_go_over_the_file_and_the_file_over_presets(tmp_path: Path) -> None:
    path = _written(tmp_path / "a.yaml", "model: {dtype: float32}\nmethod: full\noptimizer: {lr: 1e-4, steps: 5}\n")
    settings = training_settings(ProposerTraining, path, {"optimizer.steps": 6})
    assert settings.model.checkpoint == "smollm2-135m-instruct"
    assert (settings.optimizer.lr, settings.optimizer.steps) == (1e-4, 6)
    assert settings.adapter.sequential == 0
    with pytest.raises(SettingsError, match=r"batch\.depths\.1: "):
        training_settings(ProposerTraining, _written(tmp_path / "c.yaml", "batch: {depths: [4, 0]}\n"), {})
    with pytest.raises(SettingsError, match="optimizer: must be a mapping"):
        training_settings(ProposerTraining, _written(tmp_path / "b.yaml", "optimizer: 3\n"), {"optimizer.steps": 6})


def test_text_is_trained_on_and_a_mended_file_is_not_refused(model: Path, tmp_path: Path) -> None:
    data, out = _written(tmp_path / "a.jsonl", '{"prompt": "a", "answer": "abcd"}\n{"prompt": "b"}\n'), tmp_path / "run"
    assert "a.jsonl, line 2: `answer`" in words(invoke(*common("proposer", model, data, out, 2), *BLOCK, code=1).stderr)
    _written(data, '{"question": "a", "answer": "abcd"}\n{"prompt": "b", "answer": "efg"}\n')
    invoke(*common("proposer", model, data, out, 2), *BLOCK, "--no-plot")
    assert metrics(out)[-1]["answer_tokens"] == 2 * (5 + 4)


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
