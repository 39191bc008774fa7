"""The training loop. All that a step depends on is the checkpoint and the step's number, so a kill costs only time."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from prove_core.errors import CheckpointError
from prove_core.training import metrics
from prove_core.training.checkpoint import Checkpoint, load_checkpoint
from prove_core.training.config import BatchConfig, Run
from prove_core.training.dataset import Example
from prove_core.training.masters import Masters
from prove_core.training.order import Order
from prove_core.training.schedule import factor
from prove_core.training.task import Task


class Trainer:
    """Trains `task` on `examples`, with checkpoints and metrics in `folder`; takes up a run that it finds there."""

    def __init__(self, task: Task, examples: Sequence[Example], config: Run, batch: BatchConfig, folder: Path) -> None:
        self._task = task
        self._examples = examples
        self._config = config
        self._accumulate = batch.accumulate
        self._folder = folder
        self._order = Order([len(e.tokens) for e in examples], batch.examples, config.seed)
        self._masters = Masters(dict(task.named_parameters()))
        self._parameters = self._masters.parameters
        self._optimizer = self._build_optimizer()
        self._tally = metrics.Tally(task.positions, is_block=task.is_block)
        self.step = 0
        self.answer_tokens = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def run(self, listener: metrics.Listener | None = None, stop: Callable[[], bool] = lambda: False) -> bool:
        """Train to the configured last step, or until `stop`, asked after each step; says whether the end was reached.

        Checkpoints on the way and at the end, always right after a line of metrics, so that no line is cut in two.
        """
        saved = reported = time.monotonic()
        last, stopped = self._config.optimizer.steps, False
        while self.step < last and not stopped:
            self._train_step()
            stopped = stop()
            if self.step % self._config.report_steps and self.step < last and not stopped:
                continue
            self._report(time.monotonic() - reported, listener)
            reported = time.monotonic()
            if reported - saved > self._config.checkpoint_seconds:
                self.save()
                saved = reported
        self.save()
        return self.step >= last

    def save(self) -> None:
        """Write a checkpoint of this very step."""
        state = {name: self._optimizer.state[p] for name, p in self._parameters.items()}
        moments = [
            {name: s.get(key, torch.zeros_like(self._parameters[name])) for name, s in state.items()}
            for key in ("exp_avg", "exp_avg_sq")
        ]
        Checkpoint(self.step, self.answer_tokens, self._parameters, *moments).save(self._folder)

    def _train_step(self) -> None:
        config = self._config.optimizer
        scale = factor(self.step, config)
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak"] * scale
        for index in range(self._accumulate):
            self._backward(self.step * self._accumulate + index)
        torch.nn.utils.clip_grad_norm_(self._parameters.values(), config.clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._masters.publish()
        self.step += 1
        self._tally.steps += 1

    def _backward(self, index: int) -> None:
        """One forward and backward pass over the `index`-th batch of the run."""
        examples = [self._examples[i] for i in self._order.batch(index)]
        done = self._task.run(examples, index)
        torch.autograd.backward(done.loss / self._accumulate)
        self._masters.collect()
        self._tally.add(done)
        self._tally.loss += float(done.loss.detach()) / self._accumulate
        visited = sum(len(example.answer) for example in examples)
        self._tally.answer_tokens += visited
        self.answer_tokens += visited

    def _report(self, seconds: float, listener: metrics.Listener | None) -> None:
        tally, optimizer = self._tally, self._config.optimizer
        nll, match = tally.means()
        report = metrics.Report(
            step=self.step,
            answer_tokens=self.answer_tokens,
            loss=round(tally.loss / tally.steps, 5),
            nll=nll,
            match=match,
            prefix=tally.prefix,
            learning_rate=self._optimizer.param_groups[-1]["lr"],
            tokens_per_second=round(tally.answer_tokens / seconds, 1),
            eta_seconds=round(seconds / tally.steps * (optimizer.steps - self.step)),
        )
        metrics.append(self._folder, report)
        tally.clear()
        if listener is not None:
            listener(report)

    def _build_optimizer(self) -> torch.optim.AdamW:
        config = self._config.optimizer
        fast = [p for name, p in self._parameters.items() if self._task.is_fast(name)]
        slow = [p for name, p in self._parameters.items() if not self._task.is_fast(name)]
        groups = [
            {"params": params, "lr": lr, "peak": lr}
            for params, lr in ((fast, config.placeholder_lr), (slow, config.lr))
            if params
        ]
        return torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0, fused=True)

    def _resume(self) -> None:
        checkpoint = load_checkpoint(self._folder)
        if checkpoint is None:
            metrics.cut(self._folder, 0)
            return
        for name, parameter in self._parameters.items():
            values = [
                named.get(name)
                for named in (checkpoint.parameters, checkpoint.first_moments, checkpoint.second_moments)
            ]
            self._restore(name, parameter, values, checkpoint.step)
        self._masters.publish()
        self.step, self.answer_tokens = checkpoint.step, checkpoint.answer_tokens
        metrics.cut(self._folder, self.step)

    def _restore(self, name: str, parameter: Tensor, values: Sequence[Tensor | None], step: int) -> None:
        value, first, second = values
        if value is None or first is None or second is None or value.shape != parameter.shape:
            raise CheckpointError(
                f"the checkpoint in {self._folder} is of another run: {name} is missing or differs in shape"
            )
        with torch.no_grad():
            parameter.copy_(value)
        moments = {"exp_avg": first.to(parameter.device), "exp_avg_sq": second.to(parameter.device)}
        steps = torch.tensor(float(step), device=parameter.device)
        self._optimizer.state[parameter] = {"step": steps, **moments}
