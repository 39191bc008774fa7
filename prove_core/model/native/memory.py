"""Memory for weights that every pass reads: in huge pages, where the system has them."""

import mmap
from contextlib import suppress

import torch
from torch import Tensor

_SLAB = 32 << 20  # bytes
_LINE = 64  # bytes of the CPU's cache


class Slabs:
    """Copies of tensors one behind the other, in few mappings.

    Of common pages, 4 KiB each, a pass reads tens of thousands, and looking them up takes up to a tenth of its time.
    """

    def __init__(self) -> None:
        self._slab, self._used = _huge(_SLAB), 0

    def copy(self, values: Tensor) -> Tensor:
        """A contiguous copy of `values`. Its memory lives as long as it does."""
        if self._used + values.nbytes > len(self._slab):
            self._slab, self._used = _huge(max(_SLAB, values.nbytes)), 0
        place = torch.frombuffer(self._slab, dtype=values.dtype, count=values.numel(), offset=self._used)
        self._used += -(-values.nbytes // _LINE) * _LINE
        return place.view(values.shape).copy_(values)


def _huge(size: int) -> mmap.mmap:
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
