from hypothesis import given
from hypothesis import strategies as st

from prove_core.training.order import Order


@given(st.lists(st.integers(1, 50), min_size=1, max_size=200), st.integers(1, 9), st.integers(0, 3))
def test_an_epoch_visits_no_example_twice_and_leaves_out_less_than_a_batch(
    lengths: list[int], batch: int, seed: int
) -> None:
    order = Order(lengths, batch, seed)
    visited = [i for index in range(order.batches_per_epoch) for i in order.batch(index)]
    assert len(visited) == len(set(visited))
    assert 0 <= len(lengths) - len(visited) < batch
    assert set(visited) <= set(range(len(lengths)))


def test_batches_are_a_function_of_seed_and_index_alone() -> None:
    lengths = [n % 37 for n in range(300)]
    forward = [Order(lengths, 4, 1).batch(i) for i in range(200)]
    order = Order(lengths, 4, 1)
    assert [order.batch(i) for i in reversed(range(200))] == forward[::-1]
    assert [Order(lengths, 4, 2).batch(i) for i in range(200)] != forward


def test_epochs_differ_and_batches_are_of_similar_length() -> None:
    lengths = [n % 100 for n in range(1600)]
    order = Order(lengths, 4, 0)
    n = order.batches_per_epoch
    assert [order.batch(i) for i in range(n)] != [order.batch(n + i) for i in range(n)]
    spread = [max(lengths[j] for j in order.batch(i)) - min(lengths[j] for j in order.batch(i)) for i in range(n)]
    assert sum(spread) / n < 20  # four random ones: about 60
