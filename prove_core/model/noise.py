"""Noise of a token's draw: a function of the request's seed, the token's index in its sequence, and the id alone.

So a draw is the same in whatever pass, mode, replica or retry it is made, and two models that draw for the same index
share their noise: they choose the same id as often as their distributions let them (see `draw`).
"""

import struct
from functools import lru_cache
from hashlib import blake2b

import torch
from torch import Tensor

_BELOW_ONE = 1 - 2**-24  # the float32 next to 1: rounding to 1 would make noise that no id survives


def row_key(seed: int, index: int) -> tuple[int, int]:
    """Two int32 that stand for the token at `index` of a sequence drawn with `seed` (0 .. 2^64 - 1)."""
    first, second = struct.unpack("<ii", blake2b(struct.pack("<QQ", seed, index), digest_size=8).digest())
    return first, second


def scatter(ids: Tensor) -> Tensor:
    """Ids, spread over all of int32: what `log_noise` takes."""
    return _mixed(ids.to(torch.int32))


@lru_cache(maxsize=4)
def all_scattered(count: int, device: torch.device) -> Tensor:
    """`scatter` of the ids 0 .. count - 1."""
    return scatter(torch.arange(count, device=device))


def log_noise(scattered: Tensor, keys: Tensor) -> Tensor:
    """Logarithms of independent standard exponentials, float32 `[rows, n]`.

    `scattered` int32 `[n]` or `[rows, n]` are ids from `scatter`; `keys` int32 `[rows, 2]` are those of `row_key`.
    """
    bits = _mixed((scattered ^ keys[:, :1]) * (keys[:, 1:] | 1))
    # what wins a draw has little noise, and near 0 this has 31 bits where 1 - u would have 24
    uniform = ((bits & 0x7FFFFFFF).float() + 0.5).mul_(2.0**-31).clamp_(max=_BELOW_ONE)
    return uniform.neg_().log1p_().neg_().log_()


def _mixed(x: Tensor) -> Tensor:
    """A bijection of int32 whose every output bit depends on every input bit (murmur3's finalizer)."""
    x = (x ^ _shifted(x, 16)) * -2048144789  # 0x85ebca6b
    x = (x ^ _shifted(x, 13)) * -1028477387  # 0xc2b2ae35
    return x ^ _shifted(x, 16)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right; torch's repeats the sign."""
    return (x >> bits) & ((1 << (32 - bits)) - 1)
