"""The choice of threads, with a clock that says what a pass takes."""

from collections.abc import Callable, Iterator

import pytest
import torch

from prove_core.model.threads import ThreadChoice, thread_choice


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


class Machine:
    """Passes take what `seconds(threads)` says."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.choice = ThreadChoice(1, 2, clock=lambda: self.now)

    def passes(self, count: int, rows: int = 1) -> list[int]:
        used = []
        for _ in range(count):
            with self.choice.timed(rows) as threads:
                assert torch.get_num_threads() == threads
                self.now += self.seconds(threads)
            assert torch.get_num_threads() == self.choice.many
            used.append(threads)
        return used


def test_idle_cores_are_used() -> None:
    machine = Machine(lambda threads: 1.0 / threads)
    used = machine.passes(600)
    assert used[0] == 2
    assert used.count(1) <= 8, "the worse choice is tried ever more rarely"


def test_contended_cores_are_left_and_taken_again() -> None:
    machine = Machine(lambda threads: 1.0 / threads)
    machine.passes(100)
    machine.seconds = lambda threads: 1.0 if threads == 1 else 4.0
    used = machine.passes(300)
    assert used[-50:].count(2) <= 2
    machine.seconds = lambda threads: 1.0 / threads
    assert machine.passes(600)[-50:].count(1) <= 2


def test_sizes_are_judged_apart() -> None:
    """Few rows may be faster on one thread while a prefill is faster on two."""
    machine = Machine(lambda threads: 1.0)
    for _ in range(200):
        machine.seconds = lambda threads: 1.0 * threads
        machine.passes(1, rows=1)
        machine.seconds = lambda threads: 100.0 / threads
        machine.passes(1, rows=200)
    machine.seconds = lambda threads: 1.0 * threads
    assert machine.passes(20, rows=1).count(1) >= 18
    machine.seconds = lambda threads: 100.0 / threads
    assert machine.passes(20, rows=200).count(2) >= 18


def test_one_core_leaves_no_choice() -> None:
    assert thread_choice(1) is None
    choice = thread_choice(16)
    assert choice is not None
    assert (choice.few, choice.many) == (8, 16)
