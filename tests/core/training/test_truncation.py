import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from prove_core.training.truncation import truncate, truncated

SIZES = st.integers(1, 9)


def pair(rank: int, columns: int, rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """A [rank, columns] and B [rows, rank], lengths as different as a trained adapter's."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rank, columns, generator=generator), 0.05 * torch.randn(rows, rank, generator=generator)


@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 99))
def test_no_other_product_of_that_rank_is_nearer(rank: int, start: int, columns: int, rows: int, seed: int) -> None:
    """The error of the nearest one is the tail of the singular values (Eckart-Young)."""
    a, b = pair(start, columns, rows, seed)
    low_a, low_b = truncated(a, b, rank)
    kept = min(rank, start, columns, rows)
    assert (low_a.shape, low_b.shape) == ((kept, columns), (rows, kept))
    product = (b.double() @ a.double()).numpy()
    values = torch.linalg.svdvals(torch.from_numpy(product))
    error = torch.linalg.matrix_norm((low_b.double() @ low_a.double()) - torch.from_numpy(product))
    torch.testing.assert_close(error, values[rank:].square().sum().sqrt(), rtol=1e-5, atol=1e-6)


@given(SIZES, SIZES, SIZES, st.integers(1, 4), st.integers(0, 99))
def test_a_rank_that_suffices_keeps_the_product(rank: int, columns: int, rows: int, more: int, seed: int) -> None:
    """Whether the matrices are of that rank, or of a higher one that their product does not use."""
    a, b = pair(rank, columns, rows, seed)
    wide_a, wide_b = torch.cat((a, a[:1].expand(more, -1))), torch.cat((b, b[:, :1].expand(-1, more)), 1)
    for start_a, start_b in ((a, b), (wide_a, wide_b)):
        low_a, low_b = truncated(start_a, start_b, rank)
        torch.testing.assert_close(low_b @ low_a, start_b @ start_a, rtol=1e-4, atol=1e-5)


@given(SIZES, SIZES, SIZES, SIZES, st.integers(0, 99))
def test_both_matrices_share_the_scale(rank: int, start: int, columns: int, rows: int, seed: int) -> None:
    low_a, low_b = truncated(*pair(start, columns, rows, seed), rank)
    torch.testing.assert_close(low_a.norm(dim=1), low_b.norm(dim=0), rtol=1e-4, atol=1e-5)


def test_only_pairs_of_a_higher_rank_change() -> None:
    a, b = pair(5, 6, 7, seed=0)
    tensors = {"q.lora_A.weight": a, "q.lora_B.weight": b, "k.lora_A.weight": a[:3], "k.lora_B.weight": b[:, :3]}
    tensors |= {"sequential.a": a, "lone.lora_A.weight": a}
    found = truncate(tensors, 3)
    assert list(found) == list(tensors)
    assert found["q.lora_A.weight"].shape == (3, 6)
    assert found["q.lora_B.weight"].shape == (7, 3)
    assert all(found[name] is tensors[name] for name in tensors if not name.startswith("q."))
