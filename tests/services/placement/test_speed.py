"""Slow replicas are told from busy ones."""

import random

from services.placement.load import Load
from services.placement.speed import Speeds


class _Machine:
    """A replica whose passes take 10 ms and .5 ms a row, `slow` times that."""

    def __init__(self, name: str, slow: float = 1.0) -> None:
        self.name, self.slow = name, slow
        self.passes, self.rows, self.seconds = 0, 0, 0.0

    def work(self, rows: int, passes: int = 20) -> Load:
        self.passes, self.rows = self.passes + passes, self.rows + rows * passes
        self.seconds += passes * self.slow * (0.010 + 0.0005 * rows)
        return Load(self.name, 1000, 0, 0, 0, self.passes, self.rows, self.seconds)


def _learn(machines: list[_Machine], rows: dict[str, tuple[int, int]], reports: int = 60) -> Speeds:
    speeds, chance = Speeds(), random.Random(1)
    for _ in range(reports):
        speeds.learn({one.name: one.work(chance.randint(*rows[one.name])) for one in machines})
    return speeds


def test_a_busy_replica_is_not_a_slow_one() -> None:
    speeds = _learn([_Machine("idle"), _Machine("busy")], {"idle": (1, 8), "busy": (20, 64)})
    assert abs(speeds.slowness("idle") - 1) < 0.1
    assert abs(speeds.slowness("busy") - 1) < 0.1


def test_a_slow_replica_is_slow_at_the_same_rows() -> None:
    speeds = _learn([_Machine("fast"), _Machine("slow", 3.0)], {"fast": (1, 32), "slow": (1, 32)})
    assert 2.5 < speeds.slowness("slow") / speeds.slowness("fast") < 3.5


def test_what_is_idle_or_unknown_or_gone_is_like_the_others() -> None:
    fast, slow, idle = _Machine("fast"), _Machine("slow", 3.0), _Machine("idle")
    speeds = Speeds()
    for _ in range(20):
        speeds.learn({"fast": fast.work(8), "slow": slow.work(8), "idle": idle.work(0, passes=0)})
    assert speeds.slowness("idle") == speeds.slowness("never seen") == 1.0
    assert speeds.slowness("slow") > 1.2
    speeds.learn({"fast": fast.work(8)})
    assert speeds.slowness("slow") == 1.0


def test_a_replica_that_recovers_is_forgiven() -> None:
    fast, slow = _Machine("fast"), _Machine("slow", 4.0)
    speeds = Speeds()
    for report in range(80):
        slow.slow = 4.0 if report < 20 else 1.0
        speeds.learn({"fast": fast.work(report % 16 + 1), "slow": slow.work(report % 16 + 1)})
    assert speeds.slowness("slow") < 1.2 * speeds.slowness("fast")
