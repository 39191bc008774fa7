"""Measurements that are to be compared take turns, so that whatever else the machine does hits all of them alike."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TypeVar

T = TypeVar("T")
W = TypeVar("W")


def alternate(
    cases: Mapping[str, Callable[[W], T]], turns: Sequence[W], tick: Callable[[], None] = lambda: None
) -> dict[str, list[T]]:
    """Every case's results, one a turn. Each turn gives its work to all cases, beginning with another one each time."""
    results: dict[str, list[T]] = {name: [] for name in cases}
    names = list(cases)
    for turn, work in enumerate(turns):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            results[name].append(cases[name](work))
            tick()
    return results


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median over the turns of `ours / theirs` within one turn."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))
