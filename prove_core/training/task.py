"""What the trainer asks of anything that can be trained."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor, nn

from prove_core.training.dataset import Example


@dataclass(frozen=True, slots=True)
class Pass:
    """One forward pass. `loss` is differentiable; nll, match, known [blocks, W] are detached, see losses.HeadLoss."""

    loss: Tensor
    nll: Tensor
    match: Tensor
    known: Tensor


class Task(Protocol):
    """A loss over batches of examples. `positions` is the W of its passes at most; `is_block`: a row is a block."""

    positions: int
    is_block: bool

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """What is trained, by saved names."""
        ...

    def is_fast(self, name: str) -> bool:
        """This parameter takes `placeholder_lr`."""
        ...

    def run(self, examples: Sequence[Example], index: int) -> Pass:
        """The loss of the run's `index`-th batch, a function of weights, examples and index alone."""
        ...
