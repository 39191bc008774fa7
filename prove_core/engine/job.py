"""A call on its way through the engine: which windows it still needs, and the answer they add up to."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from prove_core.errors import ProveError
from prove_core.kv.sequence import Sequence
from prove_core.model.window import PlaceholderGroup, Remnant, SidePath, Window, WindowOutput
from prove_core.types import (
    Alternatives,
    Answer,
    Branch,
    CallRequest,
    CallResult,
    Continue,
    Continued,
    Draft,
    Drafted,
    Fuse,
    Fused,
    Proposal,
    Propose,
    Reading,
    TokenIds,
    Verify,
)

Done = Callable[[CallResult | ProveError], None]


@dataclass(slots=True, eq=False)
class Job:
    """One `CallRequest` whose commit has been applied to `sequence`.

    The first row that needs logits is that of the last context token known when the call began: earlier rows only
    fill the KV cache and may be prefilled in chunks over several passes.
    """

    session: str
    sequence: Sequence
    request: CallRequest
    done: Done
    submitted: float = field(default_factory=time.perf_counter)
    started: float | None = None
    cold: bool = False  # it found no KV of its session, so it reads all tokens
    passes: int = 0
    pass_seconds: float = 0.0
    placeholders: int = field(init=False)  # rows of the final window
    _scratch: int = field(init=False)  # rows of it whose KV is not kept
    _block: TokenIds = ()  # of the call, to read after the committed tokens
    _branches: tuple[Branch, ...] = ()
    _alternatives: Alternatives = ()
    _drafts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        match self.request.call:
            case Fuse(block, branches, alternatives):
                self._block, self._branches, self._alternatives = block, branches, alternatives
            case Continue(block, branches):
                self._block, self._branches = block, branches
            case Verify(block, alternatives):
                self._block, self._alternatives = block, alternatives
            case Propose(block_size) if block_size > 1:
                self._branches = (Branch(0, block_size - 1),)
        self._count()

    def _count(self) -> None:
        self.placeholders = sum([branch.placeholders for branch in self._branches])
        self._scratch = self.placeholders + sum([len(other.tokens) for other in self._alternatives])

    @property
    def _ahead(self) -> TokenIds:
        """Tokens to read after the committed ones."""
        return self._block or tuple(self._drafts)

    def drop_extras(self) -> None:
        """Do without alternatives and what a pass proposes behind a block, where a pool would be too small for them."""
        self._alternatives = ()
        if isinstance(self.request.call, Fuse | Continue):
            self.request = replace(self.request, call=replace(self.request.call, branches=()))
            self._branches = ()
        self._count()

    @property
    def length(self) -> int:
        """Positions the call needs pages for at its end."""
        call = self.request.call
        ahead = call.length if isinstance(call, Draft) else len(self._ahead)
        return len(self.sequence.tokens) + ahead + self._scratch + 2 * len(self._alternatives)  # as `Window.length`

    @property
    def rows(self) -> int:
        """Rows still to run for the next window that yields logits, prefill included."""
        return len(self.sequence.tokens) + len(self._ahead) - self._start() + self._scratch

    @property
    def answer_rows(self) -> int:
        """Rows that yield logits together: one pass must hold them."""
        return len(self._block) + 1 + self._scratch

    def _first_logits(self) -> int:
        """Position of the first row whose logits are wanted."""
        return len(self.sequence.tokens) - 1 + len(self._drafts)

    def _start(self) -> int:
        """Rows of KV to build on: what is cached, less the rows whose logits are wanted again."""
        return min(len(self.sequence.cached), self._first_logits())

    @property
    def prefill(self) -> int:
        """Rows to run before the first that yields logits."""
        return self._first_logits() - self._start()

    def window(self, max_rows: int, chunk: int) -> Window | None:
        """The next window within `max_rows` rows, at most `chunk` of them prefill; None when there is no room.

        Trims the sequence to the window's start; its pages must be reserved before the window runs.
        """
        first, start = self._first_logits(), self._start()
        self.sequence.trim(start)
        start = len(self.sequence.cached)
        prefill = first - start
        committed = self.sequence.tokens
        tokens = [*committed[start:], *self._ahead[max(0, start - len(committed)) :]]
        if prefill > chunk or self.rows > max_rows:
            count = min(prefill, chunk, max_rows)
            return Window(tokens[:count], start, self.sequence.pages) if count > 0 else None
        logits = len(tokens) - prefill
        targets = self._block
        last = len(tokens) - 1 - len(targets)  # the token that comes before the block
        groups = tuple([PlaceholderGroup(last + b.accepted, b.placeholders) for b in self._branches])
        sides = tuple([SidePath(last + other.accepted, other.tokens) for other in self._alternatives])
        sampling = self.request.sampling
        penalizes = sampling is not None and sampling.penalizes
        call, floor, pages = self.request.call, self.request.floor, self.sequence.pages
        fuses = isinstance(call, Fuse)
        keeps = fuses and (sampling is None or not sampling.adjusts)
        remnant = self.sequence.remnant if keeps and isinstance(self.sequence.remnant, Remnant) else None
        before = self.sequence.cached[:] if groups or penalizes or remnant else ()
        how = isinstance(call, Continue), not fuses, sides, keeps, remnant
        return Window(tokens, start, pages, groups, logits, targets, floor, sampling, before, *how)

    def absorb(self, window: Window, output: WindowOutput, seconds: float) -> Answer | None:
        """Account for a window that has run; the call's answer once it is complete."""
        self.sequence.fed(window.tokens)
        self.passes += 1
        self.pass_seconds += seconds
        if not window.logits:
            return None
        if window.keeps:
            self.sequence.remnant = output.remnant
        match self.request.call:
            case Propose():
                tokens, confidences = output.argmax + output.drafts, output.confidences + output.draft_confidences
                return Proposal(tokens, confidences, output.logprobs, output.alternatives)
            case Fuse():
                drafts, confidences = output.drafts, output.draft_confidences
                read, kept = (output.logprobs, output.behind, output.alternatives), output.remnant is not None
                return Fused(output.argmax, drafts, confidences, *read, kept)
            case Continue(_, branches):
                return Continued(_proposals(branches, output))
            case Verify():
                return Reading(output.argmax, output.probabilities, output.logprobs, output.behind)
            case Draft(length):
                self._drafts.append(output.argmax[0])
                return Drafted(tuple(self._drafts)) if len(self._drafts) == length else None

    def result(self, answer: Answer) -> CallResult:
        """The answer with what it cost."""
        queued = (self.started if self.started is not None else time.perf_counter()) - self.submitted
        return CallResult(answer, self.passes, self.pass_seconds, queued)


def _proposals(branches: tuple[Branch, ...], output: WindowOutput) -> tuple[Proposal, ...]:
    """Of each branch its stop's AR token, then its drafts."""
    ends = [*accumulate((branch.placeholders for branch in branches), initial=0)]
    parts = [slice(begin, end) for begin, end in pairwise(ends)]
    return tuple(
        Proposal(
            (output.argmax[branch.accepted], *output.drafts[part]),
            (output.confidences[branch.accepted], *output.draft_confidences[part]),
        )
        for branch, part in zip(branches, parts, strict=True)
    )
