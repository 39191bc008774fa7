"""Where side paths stand among a window's keys, and which of them a forward can read.

What a side path's rows say is committed, so they must have the bits that they would have behind committed tokens,
wherever their keys lie. Compiled passes add up keys two by two within spans of so many positions, of each pair the odd
one first: there a path keeps its bits if it lies as it would lie, odd places in odd ones, in the span of the token that
it follows, and one that begins in an odd place has that token's key beside it again.
"""

from collections.abc import Iterator, Sequence

from prove_core.model.window import PlaceholderGroup, SidePath, Window
from prove_core.types import TokenIds


def placed(window: Window, *, in_pairs: bool) -> Iterator[tuple[SidePath | PlaceholderGroup, int, int]]:
    """Each part of the window, where its first key lies, and how many keys before that are others' again.

    `in_pairs`: side paths lie so that their pairs of keys are those of the tokens that they stand for. So one that
    begins in an odd place leaves the place before it to the key of the token that it follows.
    """
    at = window.end
    for part in window.parts:
        again = 0
        if in_pairs and isinstance(part, SidePath):
            again = window.follows(part) % 2
            at += at % 2 + again
        yield part, at, again
        at += part.count


def readable(window: Window, span: int | None) -> list[SidePath]:
    """The side paths to read where keys are added up in spans of so many: None: anyhow, 0: of unknown size."""
    if span is None:
        return list(window.sides)
    kept: list[SidePath] = []
    at = window.end
    for side in window.sides if span else ():
        follows = window.follows(side)
        end = at + at % 2 + follows % 2 + side.count
        if (end - 1) // span == follows // span:
            kept.append(side)
            at = end
    return kept


def spread(asked: Sequence[SidePath], read: Sequence[SidePath], behind: Sequence[TokenIds]) -> tuple[TokenIds, ...]:
    """For each side path that was asked for what is `behind` it; nothing for those that were not read."""
    found = {id(side): choices for side, choices in zip(read, behind, strict=True)}
    return tuple(found.get(id(side), ()) for side in asked)
