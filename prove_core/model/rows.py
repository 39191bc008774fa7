"""Which rows of the running pass are placeholders: what a gated adapter must know inside a Linear."""

from dataclasses import dataclass

import torch


@dataclass(slots=True)
class RowMask:
    """Holder that the runner fills before each forward pass and gated modules read during it.

    `placeholders` says which rows of the pass's `[1, rows, hidden]` activations are placeholders: a slice where they
    are neighbours (no copy is then needed), else an int64 tensor of ascending indices on the model's device; None when
    the pass has no placeholder row.
    """

    placeholders: torch.Tensor | slice | None = None
