"""Rotary tables by position, computed by the model's own module as far as positions have come."""

import torch
from torch import Tensor, nn

STEP = 1024  # positions computed at a time: always as many, so that a position's bits do not depend on when it came


class RotaryTable:
    """cos and sin `[positions, head_dim]` in bfloat16."""

    def __init__(self, rotary: nn.Module) -> None:
        self._rotary = rotary
        self.cosines, self.sines = self._piece(0)

    def reach(self, position: int) -> bool:
        """Let the tables hold `position`; whether they are other ones now."""
        known = len(self.cosines)
        if position < known:
            return False
        end = max(2 * known, position + 1)  # a table is copied when it grows: seldom
        pieces = [self._piece(start) for start in range(known, end, STEP)]
        self.cosines = torch.cat([self.cosines, *(cosines for cosines, _ in pieces)])
        self.sines = torch.cat([self.sines, *(sines for _, sines in pieces)])
        return True

    def _piece(self, start: int) -> tuple[Tensor, Tensor]:
        positions = torch.arange(start, start + STEP)
        cosines, sines = self._rotary(torch.empty(0, dtype=torch.bfloat16), positions[None])
        return cosines[0].contiguous(), sines[0].contiguous()
