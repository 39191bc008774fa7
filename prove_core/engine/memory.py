"""How large a KV pool may be, and whether it is large enough: plain arithmetic on bytes and tokens."""

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from prove_core.errors import TooLittleMemory
from prove_core.kv.storage import LayerShape

FRACTIONS = {"cuda": 0.9, "cpu": 0.25}  # of a device's memory, where the configuration names none
SHORT_SESSION = 128  # tokens of a short question with its answer
_LOGITS_COPIES = 3  # a pass holds its logits in the model's dtype, in float32, and as probabilities


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes of one device: `total` in all, of which this engine may take `fraction`; `taken` by weights already,
    `reserved` for what a pass needs on top."""

    total: int
    fraction: float
    taken: int
    reserved: int

    @property
    def left(self) -> int:
        """What the KV pool may have; negative if the weights alone are too large."""
        return int(self.total * self.fraction) - self.taken - self.reserved


def bytes_per_token(layers: Iterable[LayerShape], dtype: torch.dtype) -> int:
    """KV of one token in all layers of one rank."""
    return dtype.itemsize * sum(layer.kv_heads * (layer.head_dim + layer.value_dim) for layer in layers)


def pool_tokens(budget: Budget, per_token: int, page_size: int) -> int:
    """Tokens, in whole pages, of the KV pool that fills the budget, its scratch page included.

    Raises TooLittleMemory where not even one page fits.
    """
    pages = budget.left // (per_token * page_size) - 1
    if pages < 1:
        raise TooLittleMemory(
            f"nothing is left for the KV pool: {budget.fraction:g} of {gib(budget.total)} is"
            f" {gib(int(budget.total * budget.fraction))}, weights take {gib(budget.taken)} and a pass"
            f" {gib(budget.reserved)}; raise memory_fraction or tensor_parallel"
        )
    return pages * page_size


def pass_bytes(max_rows: int, vocabulary: int, hidden: int, intermediate: int) -> int:
    """A generous estimate of what a pass of `max_rows` rows, all with logits, holds at once beside weights and KV."""
    return 4 * max_rows * (_LOGITS_COPIES * vocabulary + 8 * hidden + 3 * intermediate)


def total_bytes(device: torch.device) -> int:
    """Memory of a device: a GPU's own, or this machine's."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_pool(tokens: int, context: int, sessions: int, place: str) -> str | None:
    """Refuse a pool of `tokens` that cannot hold one session of `context` tokens; a warning if it is sure to starve.

    That is when `sessions` at once, all of them short, do not fit. `place` is the role in the configuration. Raises
    TooLittleMemory.
    """
    if tokens < context:
        raise TooLittleMemory(
            f"{place}: a KV pool of {tokens} tokens cannot hold one session of full length, {context} tokens:"
            f" raise {place}.engine.cache.tokens or lower {place}.engine.model.max_length"
        )
    short = min(SHORT_SESSION, context)
    if tokens >= sessions * short:
        return None
    return (
        f"{place}: a KV pool of {tokens} tokens will starve at max_ongoing_requests {sessions}: that leaves a session"
        f" {tokens // sessions} tokens; raise {place}.engine.cache.tokens to {sessions * short} or more,"
        f" or lower {place}.max_ongoing_requests to {max(1, tokens // short)}"
    )


def gib(count: int) -> str:
    """Bytes for people."""
    return f"{count / 2**30:.2f} GiB"
