"""Elementwise functions whose every element gets the same bits however many elements there are."""

from collections.abc import Callable

import torch

PIECE = 1 << 15  # elements that torch handles in one thread, as whole vectors


def in_pieces(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """`function` (elementwise) of `x`, piece by piece.

    Kernels treat the elements left over at a thread's end differently from those in whole vectors, and where threads
    end depends on how many elements there are. Pieces stay in one thread; `x` must hold a multiple of 64 elements.
    """
    if x.numel() <= PIECE:
        return function(x)
    return torch.cat([function(piece) for piece in torch.split(x.flatten(), PIECE)]).view(x.shape)
