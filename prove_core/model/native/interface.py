"""The structures of `kernels/interface.h`, field by field."""

import ctypes
from array import array
from ctypes import c_float, c_int32, c_void_p

import numpy as np
import torch
from numpy.typing import NDArray

from prove_core.model.alternatives import MOST


class Weight(ctypes.Structure):
    """A product of packed weights, with what an adapter adds on placeholder rows."""

    _fields_ = (
        ("blocks", c_void_p),
        ("bias", c_void_p),
        ("a", c_void_p),
        ("b", c_void_p),
        ("parts", c_void_p),
        ("inputs", c_int32),
        ("outputs", c_int32),
        ("rank", c_int32),
        ("part_rank", c_int32),
        ("scale", c_float),
    )


class Layer(ctypes.Structure):
    """A decoder layer and its KV."""

    _fields_ = (
        ("input_norm", c_void_p),
        ("middle_norm", c_void_p),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("qkv", Weight),
        ("o", Weight),
        ("gate_up", Weight),
        ("down", Weight),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("window", c_int32),
        ("scaling", c_float),
    )


class Model(ctypes.Structure):
    """All layers, and what stands before and behind them."""

    _fields_ = (
        ("layers", c_void_p),
        ("embedding", c_void_p),
        ("placeholders", c_void_p),
        ("final_norm", c_void_p),
        ("head", Weight),
        ("banned", c_void_p),
        ("cosines", c_void_p),
        ("sines", c_void_p),
        ("count", c_int32),
        ("hidden", c_int32),
        ("query_heads", c_int32),
        ("kv_heads", c_int32),
        ("head_dim", c_int32),
        ("page_size", c_int32),
        ("vocabulary", c_int32),
        ("placeholder_count", c_int32),
        ("banned_count", c_int32),
        ("positions", c_int32),
        ("epsilon", c_float),
    )


class Task(ctypes.Structure):
    """What a pass is asked for: see the header."""

    _fields_ = (
        ("ids", c_void_p),
        ("positions", c_void_p),
        ("slots", c_void_p),
        ("placeholders", c_void_p),
        ("ordinals", c_void_p),
        ("windows", c_void_p),
        ("pages", c_void_p),
        ("page_table", c_void_p),
        ("gaps", c_void_p),
        ("outputs", c_void_p),
        ("logits", c_void_p),
        ("states", c_void_p),
        ("rows", c_int32),
        ("placeholder_count", c_int32),
        ("window_count", c_int32),
        ("gap_count", c_int32),
        ("output_count", c_int32),
        ("threads", c_int32),
        ("products_only", c_int32),
    )


class Head(ctypes.Structure):
    """The sequential head and the tables that it looks up: `kernels/walk.h`."""

    _fields_ = (
        ("a", c_void_p),
        ("r", c_void_p),
        ("o", c_void_p),
        ("position", c_void_p),
        ("previous", c_void_p),
        ("output", c_void_p),
        ("recall", c_void_p),
        ("hidden", c_int32),
        ("width", c_int32),
        ("placeholders", c_int32),
        ("vocabulary", c_int32),
    )


class Block(ctypes.Structure):
    """A block of placeholders, its rows and the tokens that they follow: `kernels/walk.h`."""

    _fields_ = (
        ("context", c_void_p),
        ("tail", c_void_p),
        ("kept", c_void_p),
        ("length", c_int32),
        ("first", c_int32),
        ("rows", c_int32),
        ("tail_rows", c_int32),
        ("known", c_int32),
    )


class Other(ctypes.Structure):
    """A token of an alternative: `kernels/walk.h`."""

    _fields_ = (("accepted", c_int32), ("alternative", c_int32), ("token", c_int32), ("probability", c_float))


class Others(ctypes.Structure):
    """Those of a block, of which there are `count`."""

    _fields_ = (("count", c_int32), ("tokens", Other * MOST))


def begin(numbers: "array[int] | array[float]") -> int:
    """Where an array's numbers begin, until it changes its size."""
    return numbers.buffer_info()[0]


def address(values: torch.Tensor | NDArray[np.int32] | None) -> int | None:
    """Where contiguous values lie; None: nowhere."""
    if values is None:
        return None
    return values.data_ptr() if isinstance(values, torch.Tensor) else values.ctypes.data
