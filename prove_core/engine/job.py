"""A call on its way through the engine: which windows it still needs, and the answer they add up to."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise

from prove_core.errors import ProveError
from prove_core.kv.sequence import Sequence
from prove_core.model.window import PlaceholderGroup, Window, WindowOutput
from prove_core.types import (
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
    _drafts: list[int] = field(default_factory=list)

    @property
    def _ahead(self) -> TokenIds:
        """Tokens to read after the committed ones."""
        match self.request.call:
            case Verify(block) | Fuse(block) | Continue(block):
                return block
            case Draft():
                return tuple(self._drafts)
            case Propose():
                return ()

    @property
    def placeholders(self) -> int:
        """Placeholder rows of the final window."""
        return sum(branch.placeholders for branch in self._branches)

    @property
    def _branches(self) -> tuple[Branch, ...]:
        match self.request.call:
            case Propose(block_size) if block_size > 1:
                return (Branch(0, block_size - 1),)
            case Fuse(_, branches) | Continue(_, branches):
                return branches
            case _:
                return ()

    def drop_branches(self) -> None:
        """Do without what a pass proposes behind a block, where a pool would be too small for it."""
        if isinstance(self.request.call, Fuse | Continue):
            self.request = replace(self.request, call=replace(self.request.call, branches=()))

    @property
    def length(self) -> int:
        """Positions the call needs pages for at its end."""
        call = self.request.call
        ahead = call.length if isinstance(call, Draft) else len(self._ahead)
        return len(self.sequence.tokens) + ahead + self.placeholders

    @property
    def rows(self) -> int:
        """Rows still to run for the next window that yields logits, prefill included."""
        return len(self.sequence.tokens) + len(self._ahead) - self._start() + self.placeholders

    @property
    def answer_rows(self) -> int:
        """Rows that yield logits together: one pass must hold them."""
        call = self.request.call
        block = () if isinstance(call, Propose | Draft) else call.block
        return len(block) + 1 + self.placeholders

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
        call = self.request.call
        targets = () if isinstance(call, Propose | Draft) else call.block
        last = len(tokens) - 1 - len(targets)  # the token that comes before the block
        groups = tuple(PlaceholderGroup(last + b.accepted, b.placeholders) for b in self._branches)
        sampling = self.request.sampling
        penalizes = sampling is not None and sampling.penalizes
        before = self.sequence.cached[:] if groups or penalizes else ()
        floor, every = self.request.floor, isinstance(call, Continue)
        return Window(tokens, start, self.sequence.pages, groups, logits, targets, floor, sampling, before, every)

    def absorb(self, window: Window, output: WindowOutput, seconds: float) -> Answer | None:
        """Account for a window that has run; the call's answer once it is complete."""
        self.sequence.fed(window.tokens)
        self.passes += 1
        self.pass_seconds += seconds
        if not window.logits:
            return None
        match self.request.call:
            case Propose():
                tokens, confidences = output.argmax + output.drafts, output.confidences + output.draft_confidences
                return Proposal(tokens, confidences, output.logprobs)
            case Fuse():
                return Fused(output.argmax, output.drafts, output.draft_confidences, output.logprobs)
            case Continue(_, branches):
                return Continued(_proposals(branches, output))
            case Verify():
                return Reading(output.argmax, output.probabilities, output.logprobs)
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
