"""One session's committed tokens and the KV that is cached for them. The invariant of trimming lives here."""

from array import array
from collections import Counter
from collections.abc import Sequence as SequenceOf

from prove_core.errors import SessionLost, StaleCommit
from prove_core.kv.pool import ROOT, PagePool
from prove_core.types import Commit, TokenIds


class Sequence:
    """`tokens` are committed; `cached` are the ids whose KV lies in `pages`, from position 0 on.

        pages   | page | page | page | page |      allocated, slot of position p = (pages[p // size], p % size)
        cached  [a b c d e f g h i j]              KV is valid for exactly these
        tokens  [a b c d e f g]                    committed; h i j were read ahead (a block, drafts)

    A commit truncates `cached` to what it shares with the new `tokens`: no page is copied or freed. The first
    `published` pages are immutable (others may share them), so a trim into them drops them instead of rewriting.
    """

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self.tokens: list[int] = []
        self.cached = array("i")  # every pass may want a copy
        self.pages: list[int] = []
        self.cycle = -1
        self.remnant: object = None  # the model's own, from its latest pass for the next one
        self._chain: list[int] = []

    def apply(self, commit: Commit) -> None:
        """Make `tokens[:keep] + append` the committed sequence. A cycle that was applied before is a no-op.

        Raises SessionLost when `keep` exceeds the tokens held, StaleCommit for an earlier cycle.
        """
        if commit.cycle == self.cycle:
            return
        if commit.cycle < self.cycle:
            raise StaleCommit(f"session {commit.session}: cycle {commit.cycle} after {self.cycle}")
        if commit.keep > len(self.tokens):
            raise SessionLost(f"session {commit.session}: {len(self.tokens)} tokens held, {commit.keep} expected")
        if commit.keep < len(self.tokens):
            self.remnant = None  # it goes on behind other tokens
        self.tokens[commit.keep :] = commit.append
        self.cycle = commit.cycle
        self.trim(self._shared_length(commit))

    def _shared_length(self, commit: Commit) -> int:
        """How many leading `cached` ids agree with `tokens`, after a commit that left `tokens[:keep]` as it was."""
        if len(self.cached) <= commit.keep:
            return len(self.cached)
        for index, (ours, theirs) in enumerate(zip(self.cached[commit.keep :], commit.append, strict=False)):
            if ours != theirs:
                return commit.keep + index
        return min(len(self.cached), len(self.tokens))

    def trim(self, length: int) -> None:
        """Forget the KV from position `length` on. Pages stay for the next cycle, unless they are shared."""
        if length >= len(self.cached):
            return
        writable_from = length // self._pool.page_size
        if len(self._chain) > writable_from:
            self._pool.release(self.pages[writable_from:])
            del self.pages[writable_from:]
            del self._chain[writable_from:]
            length = writable_from * self._pool.page_size
        del self.cached[length:]

    def attach_prefix(self) -> None:
        """Take over what the prefix cache holds of `tokens`. Only for a sequence without pages."""
        entries = self._pool.match(self.tokens)
        self.pages = [entry.page for entry in entries]
        self._chain = [entry.uid for entry in entries]
        self.cached = array("i", self.tokens[: len(entries) * self._pool.page_size])

    def gain(self, given: Counter[int]) -> int:
        """Pages that releasing this sequence too would make available, after those in `given`; adds its own to them."""
        return self._pool.gain(self.pages, given)

    def missing(self, length: int) -> int:
        """Pages beyond its own and the available ones that `length` positions take."""
        return self._pool.pages_for(length) - len(self.pages) - self._pool.available

    def reserve(self, length: int) -> bool:
        """Own pages for `length` positions; False, with nothing taken, when the pool has too few."""
        missing = self._pool.pages_for(length) - len(self.pages)
        if missing <= 0:
            return True
        fresh = self._pool.allocate(missing)
        if fresh is None:
            return False
        self.pages += fresh
        return True

    def fed(self, tokens: SequenceOf[int]) -> None:
        """A pass has left the KV of `tokens` after `cached`. Publishes the pages that are now full and committed."""
        self.cached.extend(tokens)
        size = self._pool.page_size
        committed = min(len(self.cached), len(self.tokens))
        while (end := (len(self._chain) + 1) * size) <= committed:
            parent = self._chain[-1] if self._chain else ROOT
            block: TokenIds = tuple(self.tokens[end - size : end])
            uid = self._pool.publish(parent, block, self.pages[end // size - 1])
            if uid == ROOT:
                return
            self._chain.append(uid)

    def release(self) -> None:
        """Give all pages back; the tokens stay known, so the sequence can be prefilled again (preemption)."""
        self._pool.release(self.pages)
        self.pages = []
        self._chain = []
        self.cached = array("i")
