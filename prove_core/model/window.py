"""Windows: what one forward pass is made of (design: everything is a window)."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

from prove_core.model.path import match_length, taken_path
from prove_core.types import Alternative, Alternatives, Floor, Logprobs, SamplingParams, TokenIds


@dataclass(frozen=True, slots=True)
class SidePath:
    """Tokens that follow the window's token number `after` (from 0) in the place of those behind it."""

    after: int
    tokens: TokenIds

    @property
    def count(self) -> int:
        """Its rows."""
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class PlaceholderGroup:
    """`count` placeholders that follow the window's token number `after` (from 0), whatever tokens come behind it."""

    after: int
    count: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a window: its first `kept` tokens stand, and `further` ones follow, of which the last is new."""

    kept: int
    further: TokenIds


@dataclass(frozen=True, slots=True)
class ChosenGroup:
    """A group of a window that is in use: its `count` rows from `row` among the window's outputs.

    The first of them predicts the token at `index` of the sequence. The last `known` tokens of the `verdict` are in the
    place of as many rows, fewer than all.
    """

    row: int
    count: int
    index: int
    known: int
    verdict: Verdict


_index = attrgetter("index")


@dataclass(frozen=True, slots=True)
class Remnant:
    """What the rows of a block that was in use still say, for where nothing newer has been proposed.

    The first of its `count` rows predicts the token at `index` of the sequence. `rows` are their walk's own, and
    `drawn` where that draws tokens.
    """

    index: int
    count: int
    rows: object
    drawn: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """One sequence's rows in a pass: `tokens`, then the rows of each side path, then the placeholders of each group.

    `tokens[i]` sits at position `start + i`; the KV of positions below `start` is valid in `pages`, and the pass leaves
    that of `tokens` there too. The j-th row of a side path or group (from 1) sits at position `start + after + j`, sees
    what `tokens[after]` sees and the earlier rows of its own. Its KV is scratch, kept behind that of `tokens`: the next
    pass overwrites it. `pages` has room for every row. Of `tokens` the last `logits` rows want an output (0: a prefill
    chunk), of `sides` all rows, and all placeholders of a group that gets one: see `WindowOutput`. `targets[i]` is an
    id to score at the i-th of those rows; targets are the tokens that follow, so they are the last of `tokens`.
    `before` are the ids below `start`, needed only where `sampling` penalizes, groups recall what came before, or there
    is a `remnant`. `every` group is in use, or the one that `chosen` finds. `weighs`: probabilities of the tokens'
    choices and targets are wanted. Only a window without `sampling` may have `sides`, and then with logits. One that
    `keeps` gets what is left of the block in use for the next one, and brings what was left before as its `remnant`.
    """

    tokens: Sequence[int]
    start: int
    pages: Sequence[int]
    groups: tuple[PlaceholderGroup, ...] = ()
    logits: int = 0
    targets: TokenIds = ()
    floor: Floor | None = None
    sampling: SamplingParams | None = None
    before: Sequence[int] = ()
    every: bool = False
    weighs: bool = True
    sides: tuple[SidePath, ...] = ()
    keeps: bool = False
    remnant: Remnant | None = None
    placeholders: int = field(init=False, repr=False, compare=False)  # rows of all groups: asked for all the time
    side_rows: int = field(init=False, repr=False, compare=False)  # those of all side paths

    def __post_init__(self) -> None:
        object.__setattr__(self, "placeholders", sum([group.count for group in self.groups]))
        object.__setattr__(self, "side_rows", sum([side.count for side in self.sides]))

    def verdict(self, argmax: TokenIds, behind: Sequence[TokenIds] = ()) -> Verdict:
        """Where `targets`, read as a block to verify, stop being `argmax`, the ids of the token rows with logits.

        `behind` are the choices of side paths' rows: a side path may go on there.
        """
        last = len(self.tokens) - 1 - len(self.targets)
        ways = tuple([Alternative(side.after - last, side.tokens) for side in self.sides])
        candidates, accepted, following = taken_path(self.targets, argmax[-1 - len(self.targets) :], ways, behind)
        matching = match_length(self.targets, candidates[:accepted])
        return Verdict(last + 1 + matching, (*candidates[matching:accepted], following))

    def chosen(self, argmax: TokenIds, behind: Sequence[TokenIds] = ()) -> list[ChosenGroup]:
        """The groups in use: all, or the latest, if any, that saw nothing but what stands, and goes on behind it.

        Both as in `verdict`.
        """
        if not self.groups or not argmax:
            return []
        verdict = None if self.every else self.verdict(argmax, behind)
        found, row = [], self.logits + self.side_rows
        for group in self.groups:
            came = verdict or Verdict(group.after + 1, (argmax[group.after - len(self.tokens)],))
            index = self.start + group.after + 2
            known = self.start + came.kept + len(came.further) - index
            if group.after < came.kept and known < group.count:
                found.append(ChosenGroup(row, group.count, index, known, came))
            row += group.count
        return found if self.every else sorted(found, key=_index)[-1:]

    def context(self, verdict: Verdict) -> "array[int]":
        """The sequence with what came of the window."""
        known = array("i", self.before)
        known.extend(self.tokens[: verdict.kept])
        known.extend(verdict.further)
        return known

    @property
    def parts(self) -> tuple[SidePath | PlaceholderGroup, ...]:
        """What comes behind the tokens, in the order of rows."""
        return (*self.sides, *self.groups)

    @property
    def rows(self) -> int:
        """Rows this window adds to the pass."""
        return len(self.tokens) + self.side_rows + self.placeholders

    @property
    def outputs(self) -> int:
        """Rows whose logits are computed: those of tokens, then of side paths, then of the groups."""
        return self.logits + self.side_rows + self.placeholders if self.logits else 0

    @property
    def end(self) -> int:
        """Position behind that of the last token."""
        return self.start + len(self.tokens)

    def follows(self, part: SidePath | PlaceholderGroup) -> int:
        """Position of a part's first row."""
        return self.start + part.after + 1

    @property
    def length(self) -> int:
        """Rows of KV, scratch included, that `pages` must have room for: up to two stay free before a side path."""
        return self.start + self.rows + 2 * len(self.sides)


@dataclass(frozen=True, slots=True)
class WindowOutput:
    """Per logits row of tokens: its chosen id and that id's probability; per target: its probability at its row.

    No probabilities of these where the window does not weigh.

    `argmax` is what its name says unless the window's `sampling` adjusts or draws. `logprobs` are of these choices,
    where `sampling` asks for them.

    `drafts` and `draft_confidences` are what the placeholders of the groups in use propose, group after group, behind
    what came of the window (`Window.verdict`), or behind the token that each of `every` group follows. Where no group
    is in use they come from its `remnant`, which also goes on where a group ends. Probabilities are float32 softmax at
    temperature 1 over the ids the tokenizer has, less banned ones. `alternatives` are to `drafts`, where one group is
    in use and the window has no sampling of its own. `remnant` is for the next window.

    `behind[k]` are the chosen ids of the rows of side path k.
    """

    argmax: TokenIds
    confidences: tuple[float, ...]
    probabilities: tuple[float, ...]
    drafts: TokenIds = ()
    draft_confidences: tuple[float, ...] = ()
    logprobs: Logprobs = ()
    behind: tuple[TokenIds, ...] = ()
    alternatives: Alternatives = ()
    remnant: Remnant | None = None


@dataclass(frozen=True, slots=True)
class PassOutput:
    """One output per window, in order. `seconds` is the forward pass and head alone, without packing and planning."""

    outputs: list[WindowOutput]
    seconds: float


class Runner(Protocol):
    """What the engine needs of a model."""

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """Run one pass. Raises nothing for valid windows: the scheduler has checked rows and pages."""
        ...
