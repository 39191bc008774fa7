"""What the kernels take for granted."""

from collections.abc import Sequence

import torch


def check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def check_ints(tensor: torch.Tensor, name: str, length: int | None = None) -> None:
    check(tensor.dtype is torch.int32, f"{name} must be int32, not {tensor.dtype}")
    check(tensor.ndim == 1 and tensor.is_contiguous(), f"{name} must be one contiguous row of numbers")
    check(length is None or len(tensor) == length, f"{name} has {len(tensor)} numbers, not {length}")


def check_indptr(indptr: torch.Tensor, name: str) -> None:
    check_ints(indptr, name)
    check(len(indptr) >= 2 and int(indptr[0]) == 0, f"{name} must begin with 0 and have a window")
    check(bool((indptr.diff() >= 0).all()), f"{name} must not fall")


def check_16_bit(dtype: torch.dtype, name: str) -> None:
    check(dtype in (torch.float16, torch.bfloat16), f"{name}: the kernels take 16-bit floats, not {dtype}")


def check_shape(tensor: torch.Tensor, shape: Sequence[int], dtype: torch.dtype, name: str) -> None:
    check(tuple(tensor.shape) == tuple(shape), f"{name} is {tuple(tensor.shape)}, not {tuple(shape)}")
    check(tensor.dtype is dtype, f"{name} is {tensor.dtype}, not {dtype}")
    check(tensor.stride(-1) == 1, f"{name}: the last dimension must be contiguous")


def check_workspace(buffer: torch.Tensor, name: str) -> None:
    check(buffer.dtype is torch.uint8 and buffer.ndim == 1 and buffer.is_contiguous(), f"{name} must be bytes in a row")
    check(buffer.data_ptr() % 16 == 0, f"{name} must be aligned to 16 bytes")
