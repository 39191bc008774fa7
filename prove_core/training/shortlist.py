"""The part of the vocabulary that answers use: the head costs several times less, the loss hardly changes."""

from collections.abc import Sequence

import torch
from torch import Tensor

from prove_core.training.dataset import Example


class Shortlist:
    """Ids that occur in some answer, renumbered. Others keep what the frozen head gives them at inference."""

    def __init__(self, head: Tensor, examples: Sequence[Example]) -> None:
        ids = sorted({token for example in examples for token in example.answer})
        self._ids = torch.tensor(ids, device=head.device)
        self.head = head.detach()[self._ids]

    def renumber(self, targets: Tensor) -> Tensor:
        """Ids of answers to rows of `head`; negative ones (no target) stay as they are."""
        return torch.where(targets < 0, targets, torch.searchsorted(self._ids, targets))
