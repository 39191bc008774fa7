"""Where side paths stand among a window's keys, and which of them a forward can read.

What a side path's rows say is committed, so they must have the bits that they would have behind committed tokens,
wherever their keys lie. Compiled passes add up keys two by two within spans of so many positions: there a path keeps
its bits if it lies as it would lie, odd places in odd ones, in the span of the token that it follows.
"""

from collections.abc import Iterator, Sequence

from prove_core.model.window import PlaceholderGroup, SidePath, Window
from prove_core.types import TokenIds


def placed(window: Window, *, in_pairs: bool) -> Iterator[tuple[SidePath | PlaceholderGroup, int]]:
    """Each part of the window, and where its first key lies; `in_pairs`: side paths leave one free where they must."""
    at = window.end
    for part in window.parts:
        if in_pairs and isinstance(part, SidePath):
            at += (at - window.follows(part)) % 2
        yield part, at
        at += part.count


def readable(window: Window, span: int | None) -> list[SidePath]:
    """The side paths to read where keys are added up in spans of so many: None: anyhow, 0: of unknown size."""
    if span is None:
        return list(window.sides)
    kept: list[SidePath] = []
    at = window.end
    for side in window.sides if span else ():
        follows = window.follows(side)
        begin = at + (at - follows) % 2
        if (begin + side.count - 1) // span == follows // span:
            kept.append(side)
            at = begin + side.count
    return kept


def spread(asked: Sequence[SidePath], read: Sequence[SidePath], behind: Sequence[TokenIds]) -> tuple[TokenIds, ...]:
    """For each side path that was asked for what is `behind` it; nothing for those that were not read."""
    found = {id(side): choices for side, choices in zip(read, behind, strict=True)}
    return tuple(found.get(id(side), ()) for side in asked)
