"""Shapes of recorded passes: which there are, and which one holds a given pass."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from prove_core.model.window import SidePath, Window

_WINDOWS = (1, 2, 4, 8, 16, 32, 64)
_LONGEST_MASKED = 32768  # keys of a window in a recorded tree: its mask has a buffer of fixed size


class PassKind(IntEnum):
    """What a pass has besides tokens; a pass of one kind may be run as one of a later kind."""

    PLAIN = 0
    PROPOSING = 1  # placeholders, each behind its window's last row
    TREE = 2


_ROWS_PER_WINDOW = {PassKind.PLAIN: (1, 4, 16), PassKind.PROPOSING: (8, 16, 32), PassKind.TREE: (8, 16, 32)}


@dataclass(frozen=True, slots=True, order=True)
class PassShape:
    """A recorded pass of `rows` rows in at most `windows` windows, of which `pages` pages of KV, and a padding window.

    Where there are placeholders the last row is padding, for the entries of the list of placeholders that are not used.
    """

    rows: int
    windows: int
    kind: PassKind
    pages: int

    @property
    def capacity(self) -> int:
        """Rows that windows may have."""
        return self.rows - (self.kind is not PassKind.PLAIN)

    def holds(self, windows: Sequence[Window], page_size: int) -> bool:
        """Whether this shape can run a pass of these windows."""
        return (
            kind_of(windows) <= self.kind
            and len(windows) <= self.windows
            and sum(window.rows for window in windows) <= self.capacity
            and sum(-(-window.length // page_size) for window in windows) <= self.pages
            and (self.kind is not PassKind.TREE or all(window.length <= self.longest for window in windows))
        )

    @property
    def longest(self) -> int:
        """Keys of a window that a mask has room for."""
        return _LONGEST_MASKED


def pass_shapes(max_rows: int, kinds: Iterable[PassKind], pages: int) -> list[PassShape]:
    """Shapes worth recording for passes of up to `max_rows` rows over a pool of `pages` pages, the largest first."""
    shapes = {
        PassShape(windows * per_window, windows, kind, pages)
        for kind in kinds
        for windows in _WINDOWS
        for per_window in _ROWS_PER_WINDOW[kind]
        if windows * per_window <= max_rows
    }
    return sorted(shapes, reverse=True)


def fitting(windows: Sequence[Window], shapes: Iterable[PassShape], page_size: int) -> PassShape | None:
    """The shape with the fewest rows, then windows, that holds a pass; None if none does: it is run eagerly.

    So are passes that mostly read prompts, since recorded ones compute the logits of all their rows. And a pass is not
    run as a later kind than need be: placeholders cost products, trees masks.
    """
    if 2 * sum(window.outputs for window in windows) < sum(window.rows for window in windows):
        return None
    kind = kind_of(windows)
    return min((s for s in shapes if s.kind is kind and s.holds(windows, page_size)), default=None)


def kind_of(windows: Iterable[Window]) -> PassKind:
    """The first kind that can run these windows."""
    return max((_kind(window) for window in windows), default=PassKind.PLAIN)


def _kind(window: Window) -> PassKind:
    kind, behind = PassKind.PLAIN, len(window.tokens)
    for part in window.parts:
        if part.count:
            own = PassKind.PLAIN if isinstance(part, SidePath) else PassKind.PROPOSING
            kind = max(kind, own if part.after + 1 == behind else PassKind.TREE)
            behind += part.count
    return kind
