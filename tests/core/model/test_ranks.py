"""What ranks send each other, over real gloo."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from prove_core.model.parallel import decode, encode
from prove_core.model.ranks import Ranks
from prove_core.model.window import PlaceholderGroup, SidePath, Window
from prove_core.types import Floor, SamplingParams
from tests.core.ranks import Group, on_all_ranks

SIZES = (2, 3)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_sums_and_joins(size: int, dtype: torch.dtype) -> None:
    parts = [torch.randn(3, 5, generator=torch.Generator().manual_seed(rank)).to(dtype) for rank in range(size)]
    expected = sum(part.float() for part in parts)
    assert isinstance(expected, torch.Tensor)

    def work(ranks: Ranks) -> tuple[torch.Tensor, torch.Tensor, int, tuple[int, ...]]:
        own, nothing = parts[ranks.rank], torch.empty(1, 0, 5)
        return ranks.sum(own.clone()), ranks.join(own), ranks.least(7 - ranks.rank), ranks.join(nothing).shape

    for total, joined, least, nothing in on_all_ranks(size, work):
        assert torch.equal(total, expected.to(dtype))
        assert torch.equal(joined, torch.cat(parts, dim=-1))
        assert nothing == (1, 0, 5 * size)
        assert least == 8 - size


def test_a_rows_sum_does_not_depend_on_its_place() -> None:
    """Three summands: their order decides the last bit."""
    parts = [torch.randn(257, 33, generator=torch.Generator().manual_seed(rank)) for rank in range(3)]

    def work(ranks: Ranks) -> bool:
        own = parts[ranks.rank]
        whole = ranks.sum(own.clone())
        return all(torch.equal(ranks.sum(own[row : row + 1].clone())[0], whole[row]) for row in (0, 100, 256))

    assert all(on_all_ranks(3, work))


@pytest.mark.parametrize("size", SIZES)
def test_messages_of_every_length_arrive(size: int) -> None:
    messages = [b"", b"x", bytes(range(256)) * 15, b"a" * 4092, b"b" * 4093, bytes(100_001), b"end"]

    def work(ranks: Ranks) -> list[bytes]:
        if not ranks.leads:
            return [ranks.receive() for _ in messages]
        for message in messages:
            ranks.send(message)
        return messages

    assert all(received == messages for received in on_all_ranks(size, work))


def test_a_rank_that_waits_learns_that_rank_0_is_gone() -> None:
    group = Group(2)
    raised: list[Exception] = []

    def wait(ranks: Ranks) -> None:
        try:
            ranks.receive()
        except RuntimeError as error:
            raised.append(error)

    group.start(wait, 1)
    group.start(lambda ranks: None, 0)  # joins, and leaves with its connections
    group.end()
    assert raised


ids = st.integers(0, 2**31 - 1)
windows = st.builds(
    Window,
    tokens=st.lists(ids, min_size=1, max_size=40),
    start=st.integers(0, 100_000),
    pages=st.lists(ids, max_size=40),
    groups=st.lists(st.builds(PlaceholderGroup, st.integers(0, 9), st.integers(1, 9)), max_size=3).map(tuple),
    logits=st.integers(0, 3),
    sides=st.lists(st.builds(SidePath, st.integers(0, 9), st.lists(ids, min_size=1).map(tuple)), max_size=3).map(tuple),
)


@given(st.lists(windows, min_size=1, max_size=5))
@settings(max_examples=50)
def test_windows_survive_the_way(batch: list[Window]) -> None:
    message = encode(batch)
    assert message != b""
    assert decode(message) == batch


def test_only_what_shapes_a_pass_travels() -> None:
    sampling = SamplingParams(prompt_length=2, temperature=1.0)
    window = Window((1, 2), 4, range(3), logits=1, floor=Floor(9, (5,)), sampling=sampling, before=(3, 4, 5, 6))
    assert decode(encode([window])) == [Window([1, 2], 4, [0, 1, 2], logits=1)]
