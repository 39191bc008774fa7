"""Accounting of KV pages: who holds which, what is free, what only the prefix cache still remembers.

Pages are in one of three states:

    free    on the free list
    held    referenced by one or more sequences (published to the prefix cache or not)
    idle    referenced by nobody, but published: kept, least recently used first out, until a page is needed
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from prove_core.types import TokenIds

ROOT = 0


@dataclass(frozen=True, slots=True)
class CachedPage:
    """A published page: `uid` names the token prefix that ends with it and is never reused."""

    uid: int
    page: int
    key: tuple[int, TokenIds]


class PagePool:
    """Allocator of `pages` KV pages of `page_size` tokens, with a prefix cache over full, committed pages.

    A prefix is looked up by (uid of its parent prefix, tokens of the page): exact, so two prefixes never collide.
    """

    def __init__(self, pages: int, page_size: int, *, prefix_cache: bool = True) -> None:
        self.pages = pages
        self.page_size = page_size
        self._prefix_cache = prefix_cache
        self._free = list(range(pages - 1, -1, -1))
        self._references = [0] * pages
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._by_key: dict[tuple[int, TokenIds], CachedPage] = {}
        self._by_page: dict[int, CachedPage] = {}
        self._last_uid = ROOT

    @property
    def available(self) -> int:
        """Pages that an allocation may take: free ones and idle cached ones."""
        return len(self._free) + len(self._idle)

    @property
    def idle(self) -> int:
        """Of the available pages those that the prefix cache still remembers."""
        return len(self._idle)

    def pages_for(self, tokens: int) -> int:
        """Pages that `tokens` positions take."""
        return -(-tokens // self.page_size)

    def allocate(self, count: int) -> list[int] | None:
        """`count` fresh pages, evicting idle cached ones as needed; None, and nothing taken, if too few."""
        if count > self.available:
            return None
        while len(self._free) < count:
            self._evict()
        taken = [self._free.pop() for _ in range(count)]
        for page in taken:
            self._references[page] = 1
        return taken

    def release(self, pages: Sequence[int]) -> None:
        """Drop one reference to each; the last pages of a prefix become evictable before its first."""
        for page in reversed(pages):
            self._references[page] -= 1
            if self._references[page] > 0:
                continue
            if page in self._by_page:
                self._idle[page] = None
            else:
                self._free.append(page)

    def gain(self, pages: Iterable[int], given: Counter[int]) -> int:
        """Pages that become available once those of `given`, to which `pages` are added here, are all released."""
        gained = 0
        for page in pages:
            given[page] += 1
            gained += given[page] == self._references[page]
        return gained

    def match(self, tokens: Sequence[int]) -> list[CachedPage]:
        """The longest published prefix of `tokens` in whole pages, short of the last token; takes references."""
        found: list[CachedPage] = []
        parent = ROOT
        for end in range(self.page_size, len(tokens), self.page_size):
            entry = self._by_key.get((parent, tuple(tokens[end - self.page_size : end])))
            if entry is None:
                break
            found.append(entry)
            parent = entry.uid
        for entry in found:
            self._references[entry.page] += 1
            self._idle.pop(entry.page, None)
        return found

    def publish(self, parent: int, tokens: TokenIds, page: int) -> int:
        """Offer a full, committed, held page to the prefix cache; immutable from now on. Returns the prefix's uid.

        When another page already holds this prefix that one stays the cached one.
        """
        if len(tokens) != self.page_size:
            raise AssertionError(f"a page of {len(tokens)} tokens published, not of {self.page_size}")
        if not self._prefix_cache:
            return ROOT
        key = (parent, tokens)
        entry = self._by_key.get(key)
        if entry is None:
            self._last_uid += 1
            entry = CachedPage(self._last_uid, page, key)
            self._by_key[key] = self._by_page[page] = entry
        return entry.uid

    def check(self, holders: Iterable[Sequence[int]]) -> None:
        """Raise AssertionError unless every page is accounted for, given the page lists of all living sequences."""
        held = Counter(page for pages in holders for page in pages)
        for page, references in enumerate(self._references):
            if references != held[page]:
                raise AssertionError(f"page {page} has {references} references but {held[page]} holders")
        idle = set(self._idle)
        free = set(self._free)
        if len(free) != len(self._free) or free & idle or (free | idle) & set(held):
            raise AssertionError("a page is in two states at once")
        if len(free) + len(idle) + len(held) != self.pages:
            raise AssertionError(f"{self.pages - len(free) - len(idle) - len(held)} pages leaked")
        if not idle <= set(self._by_page):
            raise AssertionError("an idle page is not in the prefix cache")

    def _evict(self) -> None:
        page, _ = self._idle.popitem(last=False)
        entry = self._by_page.pop(page)
        del self._by_key[entry.key]
        self._free.append(page)
