"""`prove bench quality` on tiny checkpoints: adapters that leave AR output alone, that change it, and bad input."""

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner, Result

from prove_core.model.adapters import WEIGHTS, AdapterKind, AdapterRecord, BaseRecord, save_adapter
from services.cli.main import app
from tests.core.model.checkpoints import save_llama
from tests.core.text.vocabularies import CHATML

LINES = [
    {"question": "2 + 3?", "answer": "5, of course\n#### 5"},
    {"prompt": "A colour.", "answer": "Green."},
    {"prompt": "Go on."},
]


def save_chat(folder: Path, **options: object) -> Path:
    """A tiny checkpoint with a chat template."""
    save_llama(folder, **options)  # type: ignore[arg-type]
    (folder / "chat_template.jinja").write_text(CHATML)
    return folder


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_chat(tmp_path_factory.mktemp("base") / "llama")


@pytest.fixture(scope="module")
def ungated(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter that acts on every row."""
    torch.manual_seed(5)
    lora = LoraConfig(r=4, lora_alpha=12.0, target_modules="all-linear", init_lora_weights=False)
    folder = tmp_path_factory.mktemp("ungated")
    get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def gated(ungated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same matrices on placeholder rows alone."""
    record = AdapterRecord(kind=AdapterKind.GATED, base=BaseRecord(name="llama"), block_size=4)
    folder = tmp_path_factory.mktemp("gated") / "adapter"
    tensors = load_file(ungated / WEIGHTS)
    save_adapter(folder, tensors, record, rank=4, alpha=12.0, placeholder=torch.randn(3, 32))
    return folder


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in LINES))
    return path


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["bench", "quality", *map(str, arguments)])


def figures(data: Path, base: Path, *arguments: str | Path) -> dict[str, float]:
    """Of the model that `arguments` make of `base`, against `base`."""
    report = data.with_name("report.json")
    both = ("--reference", base, "--candidate", base, "--max-tokens", "20")
    result = invoke("--data", data, *both, "--json", report, *arguments)
    assert result.exit_code == 0, result.output
    written = json.loads(report.read_text())
    assert len(written["samples"]["common_share"]) == len(LINES)
    assert written["config"]["reference"]["checkpoint"] == str(base)
    found: dict[str, float] = written["figures"]
    assert all(name in result.stdout for name in found)
    return found


def test_a_gated_adapter_leaves_everything_as_it_is(data: Path, base: Path, gated: Path) -> None:
    found = figures(data, base, "--candidate-adapter", gated)
    for name in ("identical_share", "common_share", "teacher_forced_agreement"):
        assert found[name] == 1, name
    assert found["perplexity_ratio"] == found["human_perplexity_ratio"] == 1
    assert found["prompts"] == 3
    assert found["human_tokens"] == sum(len(str(line["answer"])) + 1 for line in LINES[:2]), "bytes and an end"
    assert found["accuracy_tasks"] == 1, "one answer states a result"
    assert found["accuracy_difference"] == 0
    assert 1 < found["perplexity_reference"] < found["human_perplexity_reference"]


@pytest.mark.parametrize("change", ["adapter", "layers"])
def test_what_changes_a_model_shows(data: Path, base: Path, ungated: Path, change: str) -> None:
    options = {"adapter": ("--candidate-adapter", ungated), "layers": ("--candidate-layers", "1")}
    found = figures(data, base, *options[change])
    assert found["identical_share"] < 1
    assert found["common_share"] < 1
    assert found["teacher_forced_agreement"] < 1
    assert found["perplexity_ratio"] != pytest.approx(1, abs=1e-3)
    assert found["human_perplexity_ratio"] != pytest.approx(1, abs=1e-3)


def test_the_same_change_on_both_sides_does_not_show(data: Path, base: Path, ungated: Path) -> None:
    found = figures(data, base, "--candidate-adapter", ungated, "--reference-adapter", ungated)
    assert found["identical_share"] == found["perplexity_ratio"] == 1


def test_without_results_there_is_no_accuracy(tmp_path: Path, base: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "a"}\n' * 3)
    found = figures(data, base, "--dtype", "float32", "--no-deterministic")
    assert found["identical_share"] == 1
    assert not [name for name in found if name.startswith(("accuracy", "human"))]


def test_another_tokenizer_is_refused(data: Path, base: Path, tmp_path: Path) -> None:
    other = save_chat(tmp_path / "other", swap=True)
    result = invoke("--data", data, "--reference", base, "--candidate", other)
    assert result.exit_code == 1
    assert "different tokenizers" in result.stderr


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"prompt": "a", "answer": [1]}', "line 2"),
        (json.dumps({"prompt": "a" * 120}), "line 2: "),
        (json.dumps({"prompt": "a", "answer": "b" * 120}), "line 2: "),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, base: Path, line: str, complaint: str) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "a"}\n' + line + "\n")
    result = invoke("--data", data, "--reference", base, "--candidate", base, "--max-tokens", "8")
    assert result.exit_code == 1
    assert "data.jsonl, " + complaint in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.model
def test_the_built_in_adapter_leaves_the_stock_models_output_alone(data: Path) -> None:
    report = data.with_name("report.json")
    result = invoke("--data", data, "--limit", "2", "--max-tokens", "12", "--json", report)
    assert result.exit_code == 0, result.output
    found = json.loads(report.read_text())["figures"]
    assert found["identical_share"] == found["teacher_forced_agreement"] == 1
    assert found["perplexity_ratio"] == found["human_perplexity_ratio"] == 1
