import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from prove_core.errors import CheckpointError
from prove_core.evaluation.prefix import measure
from prove_core.training.checkpoint import FILE, load_checkpoint
from prove_core.training.config import Method
from prove_core.training.masters import Masters
from prove_core.training.proposer import BlockProposer
from prove_core.training.schedule import factor
from tests.core.tiny import tiny_model
from tests.core.training.examples import (
    BLOCK_SIZE,
    adapter_config,
    block_trainer,
    counting_model,
    greedy_examples,
    tiny_config,
    tiny_proposer,
    tiny_trainer,
)

RUN = "import sys; from pathlib import Path; from tests.core.training.examples import tiny_trainer; "


def metrics(folder: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("tokens_per_second", "eta_seconds")} for line in lines]


@pytest.mark.parametrize("method", list(Method))
def test_200_steps_lower_the_loss_and_raise_the_matching_prefix_on_unseen_prompts(
    tmp_path: Path, method: Method
) -> None:
    model = counting_model()
    unseen = greedy_examples(model, 24, seed=1)
    examples = greedy_examples(model, 256)
    proposer = tiny_proposer(model, method=method)
    before = measure(proposer, unseen, BLOCK_SIZE)
    assert block_trainer(proposer, examples, tiny_config(200, method), tmp_path).run()
    after = measure(proposer, unseen, BLOCK_SIZE)
    lines = metrics(tmp_path)
    assert sum(lines[-1]["nll"]) < 0.7 * sum(lines[0]["nll"])  # type: ignore[arg-type]
    assert after.mean > before.mean + 0.4
    assert after.match[0] > before.match[0]


@pytest.mark.parametrize("kind", ["gated", "bf16", "verifier"])
def test_a_killed_run_resumes_to_the_same_weights_and_the_same_curve(tmp_path: Path, kind: str) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    tiny_trainer(whole, 60, kind).run()
    run = RUN + f"tiny_trainer(Path({str(killed)!r}), 60, {kind!r}).run()"
    process = subprocess.Popen([sys.executable, "-c", run])
    deadline = time.monotonic() + 120
    while not (killed / FILE).exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"
    resumed = tiny_trainer(killed, 60, kind)
    assert 0 < resumed.step < 60
    resumed.run()
    ours, theirs = load_checkpoint(killed), load_checkpoint(whole)
    assert ours is not None
    assert theirs is not None
    assert (ours.step, ours.answer_tokens) == (theirs.step, theirs.answer_tokens)
    for name, tensor in theirs.parameters.items():
        assert torch.equal(ours.parameters[name], tensor), name
    assert metrics(killed) == metrics(whole)


def test_a_half_written_metrics_line_is_forgotten(tmp_path: Path) -> None:
    tiny_trainer(tmp_path, 10).run()
    expected = metrics(tmp_path)
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 20, "answ')
    assert tiny_trainer(tmp_path, 10).step == 10
    assert metrics(tmp_path) == expected


def test_a_broken_or_foreign_checkpoint_is_an_error_not_a_fresh_start(tmp_path: Path) -> None:
    tiny_trainer(tmp_path, 10).run()
    narrow = BlockProposer(tiny_model(), adapter_config().model_copy(update={"rank": 4}))
    with pytest.raises(CheckpointError, match="another run"):
        block_trainer(narrow, greedy_examples(tiny_model(), 8), tiny_config(10), tmp_path)
    os.truncate(tmp_path / FILE, 100)
    with pytest.raises(CheckpointError):
        tiny_trainer(tmp_path, 10)


def test_learning_rate_warms_up_holds_and_decays() -> None:
    config = tiny_config(110).optimizer.model_copy(update={"plateau": 0.5, "floor": 0.1})
    factors = [factor(step, config) for step in range(110)]
    assert factors[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert set(factors[10:60]) == {1.0}
    assert factors[60:] == sorted(factors[60:], reverse=True)
    assert factor(110, config) == pytest.approx(0.1)


def test_a_run_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    tiny_trainer(tmp_path / "whole", 30).run()
    trainer = tiny_trainer(tmp_path / "stopped", 30)
    assert not trainer.run(stop=lambda: trainer.step == 13)
    resumed = tiny_trainer(tmp_path / "stopped", 30)
    assert resumed.step == 13
    assert resumed.run()
    ours, theirs = load_checkpoint(tmp_path / "stopped"), load_checkpoint(tmp_path / "whole")
    assert ours is not None
    assert theirs is not None
    assert all(torch.equal(ours.parameters[name], tensor) for name, tensor in theirs.parameters.items())


def test_verifier_training_lowers_the_loss_on_unseen_answers(tmp_path: Path) -> None:
    trainer = tiny_trainer(tmp_path, 100, "verifier")
    trainer.run()
    lines = metrics(tmp_path)
    assert lines[-1]["loss"] < 0.8 * lines[0]["loss"]  # type: ignore[operator]
    assert lines[-1]["prefix"] is None


def test_accumulated_gradients_equal_those_of_one_large_batch() -> None:
    """A full model in bfloat16: the masters add up what its passes leave behind."""
    parameter = torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
    masters = Masters({"w": parameter})
    for scale in (1.0, 2.0**-9):
        parameter.grad = torch.full((4,), scale, dtype=torch.bfloat16)
        masters.collect()
    assert masters.parameters["w"].grad is not None
    assert masters.parameters["w"].grad.tolist() == [1.0 + 2.0**-9] * 4, "bfloat16 would have lost the second"
    with torch.no_grad():
        masters.parameters["w"].add_(0.5)
    masters.publish()
    assert parameter.tolist() == [0.5] * 4
