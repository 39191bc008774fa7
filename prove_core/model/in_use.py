"""Blocks of placeholders that are in use: of which rows they are made, and what they follow."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from prove_core.model.penalties import NOTHING, Occurrences
from prove_core.model.window import ChosenGroup, Remnant, Verdict, Window, WindowOutput
from prove_core.types import SamplingParams

NO_REMNANT = Remnant(0, 0, None)


@dataclass(frozen=True, slots=True)
class InUse:
    """`rows` of the pass from `first` among its outputs, then those of `tail` from number `tail_first` on.

    The first row predicts the token at `index` of the sequence. `context` is that sequence, or its end where nothing
    recalls it: its last `known` tokens are in the place of the first rows, so rows choose what comes behind them.
    `seen` are its tokens where penalties ask for them. `keeps`: its rows are wanted as a `Remnant`.
    """

    window: int
    first: int
    rows: int
    index: int
    context: "array[int]"
    known: int = 0
    sampling: SamplingParams | None = None
    seen: Occurrences = NOTHING
    tail: Remnant = NO_REMNANT
    tail_first: int = 0
    keeps: bool = False

    @property
    def tail_rows(self) -> int:
        """Rows of the tail."""
        return self.tail.count - self.tail_first

    @property
    def length(self) -> int:
        """All rows."""
        return self.rows + self.tail_rows

    @property
    def samples(self) -> bool:
        """Whether it does not simply take the likeliest tokens."""
        return self.sampling is not None and (self.sampling.adjusts or self.sampling.draws)

    def before(self, depth: int) -> int:
        """The token before the row at `depth`, up to `known`."""
        return self.context[len(self.context) - 1 - self.known + depth]


def in_use(windows: Sequence[Window], outputs: Sequence[WindowOutput], *, sampled_only: bool) -> list[InUse]:
    """Of all windows."""
    begins = accumulate([window.outputs for window in windows], initial=0)
    found = []
    for number, (window, output, begin) in enumerate(zip(windows, outputs, begins, strict=False)):
        if not window.logits or (sampled_only and window.sampling is None):
            continue
        groups = window.chosen(output.argmax, output.behind)
        remnant = _remnant(window)
        found += [_of_group(number, window, group, begin, remnant) for group in groups]
        if not groups and remnant.count:
            block = _of_remnant(number, window, remnant, window.verdict(output.argmax, output.behind))
            found += [block] if 0 <= block.known < block.length else []
    return found


def _remnant(window: Window) -> Remnant:
    """That of the window, if it is made as its blocks are."""
    draws = window.sampling is not None and window.sampling.draws
    usable = window.keeps and window.remnant is not None and window.remnant.drawn == draws
    return window.remnant if usable and window.remnant is not None else NO_REMNANT


def _of_group(number: int, window: Window, group: ChosenGroup, begin: int, remnant: Remnant) -> InUse:
    context, sampling = window.context(group.verdict), window.sampling
    further = group.index + group.count - remnant.index
    tail, tail_first = (remnant, further) if 0 <= further < remnant.count else (NO_REMNANT, 0)
    penalized = sampling is not None and sampling.penalizes
    seen = Occurrences.of(context, sampling.prompt_length) if sampling is not None and penalized else NOTHING
    rows = begin + group.row, group.count, group.index
    return InUse(number, *rows, context, group.known, sampling, seen, tail, tail_first, window.keeps)


def _of_remnant(number: int, window: Window, remnant: Remnant, verdict: Verdict) -> InUse:
    known = window.start + verdict.kept + len(verdict.further) - remnant.index
    return InUse(number, 0, 0, remnant.index, window.context(verdict), known, window.sampling, tail=remnant)
