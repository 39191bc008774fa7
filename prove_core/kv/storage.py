"""The K and V tensors behind the page pool, in FlashInfer's NHD layout."""

from collections.abc import Sequence
from typing import NamedTuple

import torch


class LayerShape(NamedTuple):
    """What one layer keeps per token: `kv_heads` keys of `head_dim` and values of `value_dim`."""

    kv_heads: int
    head_dim: int
    value_dim: int


class KVStorage:
    """Per layer a (k, v) tuple, each `[pages + 1, page_size, kv_heads, dim]`.

    The last page, `scratch_page`, belongs to no sequence: padding rows write there. Slot `s` is row `s % page_size` of
    page `s // page_size`. Memory starts as zeros, so that a slot nobody wrote never holds a NaN.
    """

    def __init__(
        self,
        layers: Sequence[LayerShape],
        *,
        pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        self.pages = pages
        self.page_size = page_size
        self.scratch_page = pages
        self.dtype = dtype
        self.device = torch.device(device)

        def empty(heads: int, dim: int) -> torch.Tensor:
            return torch.zeros(pages + 1, page_size, heads, dim, dtype=dtype, device=device)

        self.layers = [
            (empty(layer.kv_heads, layer.head_dim), empty(layer.kv_heads, layer.value_dim)) for layer in layers
        ]

    @property
    def bytes(self) -> int:
        """Memory taken by all layers, scratch page included."""
        return sum(tensor.nbytes for pair in self.layers for tensor in pair)
