"""The training loop. All that a step depends on is the checkpoint and the step's number, so a kill costs only time."""

import random
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from prove_core.errors import CheckpointError
from prove_core.model.adapters import PREFIX
from prove_core.training import metrics
from prove_core.training.checkpoint import Checkpoint, load_checkpoint
from prove_core.training.config import TrainingConfig
from prove_core.training.dataset import Example
from prove_core.training.layout import choose_anchors, lay_out
from prove_core.training.losses import PositionWeights, block_loss
from prove_core.training.order import Order
from prove_core.training.proposer import BlockProposer
from prove_core.training.schedule import factor
from prove_core.training.shortlist import Shortlist


class Trainer:
    """Trains `proposer` on `examples`, with checkpoints and metrics in `folder`; takes up a run that it finds there."""

    def __init__(
        self, proposer: BlockProposer, examples: Sequence[Example], config: TrainingConfig, folder: Path
    ) -> None:
        self._proposer = proposer
        self._examples = examples
        self._config = config
        self._folder = folder
        self._order = Order([len(e.tokens) for e in examples], config.batch.examples, config.seed)
        self._weigh = PositionWeights(config.loss.decay, config.loss.reach)
        self._shortlist = Shortlist(proposer.head, examples)
        self._parameters = dict(proposer.named_parameters())
        self._optimizer = self._build_optimizer()
        self._tally = metrics.Tally(config.adapter.block_size - 1)
        self.step = 0
        self.answer_tokens = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def run(self, listener: metrics.Listener | None = None) -> None:
        """Train to the configured last step; checkpoints on the way and at the end."""
        saved = reported = time.monotonic()
        while self.step < self._config.optimizer.steps:
            self._train_step()
            if self.step % self._config.report_steps == 0 or self.step == self._config.optimizer.steps:
                self._report(time.monotonic() - reported, listener)
                reported = time.monotonic()
                if reported - saved > self._config.checkpoint_seconds:  # between intervals, so that no metrics are cut
                    self.save()
                    saved = reported
        self.save()

    def save(self) -> None:
        """Write a checkpoint of this very step."""
        state = {name: self._optimizer.state[p] for name, p in self._parameters.items()}
        moments = [
            {name: s.get(key, torch.zeros_like(self._parameters[name])) for name, s in state.items()}
            for key in ("exp_avg", "exp_avg_sq")
        ]
        Checkpoint(self.step, self.answer_tokens, self._parameters, *moments).save(self._folder)

    def _train_step(self) -> None:
        config = self._config
        scale = factor(self.step, config.optimizer)
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak"] * scale
        for index in range(config.batch.accumulate):
            self._backward(self.step * config.batch.accumulate + index)
        torch.nn.utils.clip_grad_norm_(self._parameters.values(), config.optimizer.clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self._tally.steps += 1

    def _backward(self, index: int) -> None:
        """One forward and backward pass over the `index`-th batch of the run."""
        examples = [self._examples[i] for i in self._order.batch(index)]
        rng = random.Random(f"{self._config.seed}/anchors/{index}")
        depths = self._config.batch.depths
        depth = min(depths[index % len(depths)], self._config.adapter.block_size - 1)
        blocks = max(1, self._config.batch.rows // depth)
        batch = lay_out(examples, [choose_anchors(example, blocks, rng) for example in examples], depth + 1)
        hidden = self._proposer.hidden(batch)
        targets = self._shortlist.renumber(batch.targets.flatten(0, 1))
        corrected = self._proposer.corrected(hidden, batch).flatten(0, 1)
        result = block_loss(corrected, self._shortlist.head, targets, self._weigh)
        loss = result.loss
        if self._proposer.sequential is not None:
            plain = block_loss(hidden.flatten(0, 1), self._shortlist.head, targets, self._weigh)
            loss = loss + self._config.loss.plain * plain.loss
        torch.autograd.backward(loss / self._config.batch.accumulate)
        self._tally.add(result.nll, result.match, targets >= 0)
        self._tally.loss += float(result.loss.detach()) / self._config.batch.accumulate
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
        small = [p for name, p in self._parameters.items() if not name.startswith(PREFIX)]
        adapters = [p for name, p in self._parameters.items() if name.startswith(PREFIX)]
        groups = [
            {"params": small, "lr": config.placeholder_lr, "peak": config.placeholder_lr},
            {"params": adapters, "lr": config.lr, "peak": config.lr},
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
        self.step, self.answer_tokens = checkpoint.step, checkpoint.answer_tokens
        metrics.cut(self._folder, self.step)

    def _restore(self, name: str, parameter: Tensor, values: Sequence[Tensor | None], step: int) -> None:
        value, first, second = values
        if value is None or first is None or second is None or value.shape != parameter.shape:
            raise CheckpointError(
                f"the checkpoint in {self._folder} is of another adapter: {name} is missing or differs in shape"
            )
        with torch.no_grad():
            parameter.copy_(value)
        self._optimizer.state[parameter] = {"step": torch.tensor(float(step)), "exp_avg": first, "exp_avg_sq": second}
