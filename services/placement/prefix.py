"""What replicas' prefix caches probably hold: the prompts that this Router sent them, page by page."""

from collections import OrderedDict
from collections.abc import Container, Sequence

from prove_core.types import TokenIds


def page_keys(tokens: TokenIds, page_size: int) -> tuple[int, ...]:
    """One key for each whole page that leaves a token after it; each names all tokens up to its end."""
    keys: list[int] = []
    parent = 0
    for end in range(page_size, len(tokens), page_size):
        parent = hash((parent, tokens[end - page_size : end]))
        keys.append(parent)
    return tuple(keys)


class PrefixMemory:
    """Keys by replica, as many as its pool has pages, least recently used out first: as the pool itself does it."""

    def __init__(self) -> None:
        self._keys: dict[str, OrderedDict[int, None]] = {}

    def matched(self, replica: str, keys: Sequence[int]) -> int:
        """Leading pages that the replica should have."""
        known = self._keys.get(replica, OrderedDict[int, None]())
        return next((index for index, key in enumerate(keys) if key not in known), len(keys))

    def pages(self, replica: str) -> int:
        """How many it should have in all."""
        return len(self._keys.get(replica, ()))

    def remember(self, replica: str, keys: Sequence[int], most: int) -> None:
        """A session with these pages goes there; `most`: pages of its pool."""
        known = self._keys.setdefault(replica, OrderedDict())
        for key in reversed(keys):  # the first pages of a prefix are used by most: they go last
            known[key] = None
            known.move_to_end(key)
        while len(known) > most:
            known.popitem(last=False)

    def keep(self, replicas: Container[str]) -> None:
        """Forget the others."""
        self._keys = {replica: known for replica, known in self._keys.items() if replica in replicas}
