"""Which rows of the running pass are placeholders: what a gated adapter must know inside a Linear."""

from dataclasses import dataclass

import torch


@dataclass(slots=True)
class RowMask:
    """Holder that the runner fills before each forward pass and gated modules read during it.

    `placeholders` is an int64 tensor of row indices into the pass's `[1, rows, hidden]` activations, ascending, on the
    model's device; None when the pass has no placeholder row.
    """

    placeholders: torch.Tensor | None = None
