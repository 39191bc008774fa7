"""Weights in mappings of their own."""

import gc

import torch

from prove_core.model.native.memory import Slabs


def test_copies_are_equal_apart_and_stay() -> None:
    slabs = Slabs()
    given = [torch.randn(size).to(torch.bfloat16) for size in ((3, 5), (17, 1000), (9000, 1900), (9, 2), (1, 33))]
    copies = [slabs.copy(values) for values in given]
    del slabs
    gc.collect()
    assert all(torch.equal(copy, values) for copy, values in zip(copies, given, strict=True))
    assert all(copy.data_ptr() % 64 == 0 for copy in copies)


def test_a_matrix_larger_than_a_slab_has_its_own() -> None:
    slabs = Slabs()
    (small, large), after = (slabs.copy(torch.ones(size, dtype=torch.uint8)) for size in (10, 40 << 20)), torch.ones(7)
    assert large.sum() == 40 << 20
    assert torch.equal(slabs.copy(after), after)
    assert small.sum() == 10
