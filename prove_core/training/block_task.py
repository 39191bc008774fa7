"""Block training (paper appendix A): placeholders behind random anchors predict the answer's tokens."""

import random
from collections.abc import Iterator, Sequence

from torch import Tensor, nn

from prove_core.training.config import Method, ProposerTraining
from prove_core.training.dataset import Example
from prove_core.training.layout import BlockBatch, choose_anchors, lay_out, pad
from prove_core.training.losses import PositionWeights, Teacher, evenly, head_loss
from prove_core.training.proposer import PLACEHOLDER, SEQUENTIAL, BlockProposer, Rows
from prove_core.training.shortlist import Shortlist
from prove_core.training.task import Pass


class BlockTask:
    """Loss of a BlockProposer; ungated and full ones also keep their AR distribution on the answers."""

    is_block = True

    def __init__(self, proposer: BlockProposer, examples: Sequence[Example], config: ProposerTraining) -> None:
        self._proposer = proposer
        self._config = config
        self._weigh = PositionWeights(config.loss.decay, config.loss.reach)
        self._shortlist = Shortlist(proposer.head, examples)
        self.positions = config.adapter.block_size - 1

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """The proposer's."""
        return self._proposer.named_parameters()

    def is_fast(self, name: str) -> bool:
        """Placeholders and the sequential head start from nothing."""
        return name == PLACEHOLDER or name.startswith(SEQUENTIAL)

    def run(self, examples: Sequence[Example], index: int) -> Pass:
        """Blocks at anchors that `index` draws."""
        rng = random.Random(f"{self._config.seed}/anchors/{index}")
        depths = self._config.batch.depths
        depth = min(depths[index % len(depths)], self.positions)
        blocks = max(1, self._config.batch.rows // depth)
        anchors = [choose_anchors(example, blocks, rng) for example in examples]
        batch = lay_out(examples, anchors, depth + 1).to(self._proposer.head.device)
        rows = self._proposer.rows(batch)
        hidden = rows.placeholders
        targets = batch.targets.flatten(0, 1)
        teacher = self._teacher(rows, batch)
        result = self._block_loss(self._proposer.corrected(hidden, batch), targets, teacher)
        loss = result.loss
        if self._proposer.sequential is not None:
            loss = loss + self._config.loss.plain * self._block_loss(hidden, targets, teacher).loss
        if self._config.method is not Method.GATED:
            loss = loss + self._config.loss.ar * self._ar_loss(rows.clean, examples)
        return Pass(loss, result.nll, result.match, targets >= 0)

    def _block_loss(self, hidden: Tensor, targets: Tensor, teacher: Teacher | None) -> Pass:
        rows, known = hidden.flatten(0, 1), targets >= 0
        head = self._proposer.head
        if self._config.method is not Method.FULL:  # a head in training needs all of its gradient
            head, targets = self._shortlist.head, self._shortlist.renumber(targets)
        result = head_loss(rows, head, targets, self._weigh, teacher=teacher)
        return Pass(result.loss, result.nll, result.match, known)

    def _teacher(self, rows: Rows, batch: BlockBatch) -> Teacher | None:
        if not self._config.loss.kl:
            return None
        return Teacher(batch.before_targets(rows.clean.detach()).flatten(0, 1), self._config.loss.kl)

    def _ar_loss(self, clean: Tensor, examples: Sequence[Example]) -> Tensor:
        targets = pad(examples).to(clean.device).targets
        known = targets >= 0
        return head_loss(clean[known][:, None], self._proposer.head, targets[known][:, None], evenly, chunk=64).loss
