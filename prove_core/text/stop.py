"""Stop strings in text that arrives in pieces."""

from collections.abc import Sequence


class StopMatcher:
    """Passes text on until a stop string appears, and never a character of one.

    Feed it one token's text at a time: then what it finds does not depend on how tokens were grouped into commits.
    """

    def __init__(self, stop_strings: Sequence[str]) -> None:
        if not all(stop_strings):
            raise ValueError("a stop string must not be empty")
        self._stops = tuple(stop_strings)
        self._held = ""  # the longest end of the text so far that a stop string begins with

    def push(self, text: str, *, armed: bool = True) -> tuple[str, bool]:
        """(text safe to show, whether a stop string was completed). A match cuts before the one that starts first.

        While not `armed` (below `min_tokens`), a completed stop string is ordinary text.
        """
        seen = len(self._held)
        text = self._held + text
        starts = [_find(text, stop, seen) for stop in self._stops] if armed else []
        if starts := [start for start in starts if start >= 0]:
            self._held = ""
            return text[: min(starts)], True
        safe = len(text) - max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[safe:]
        return text[:safe], False

    def finish(self) -> str:
        """The held-back text: nothing follows, so it begins no stop string."""
        held, self._held = self._held, ""
        return held


def _find(text: str, stop: str, seen: int) -> int:
    """Where `stop` starts in `text`, if it ends beyond the first `seen` characters; else -1."""
    return text.find(stop, max(0, seen - len(stop) + 1))


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
