"""What decoding did for one completion, counted from the steps its user got."""

from dataclasses import dataclass, field

from prove_core.types import Finished, Mode, PassCount, Step


@dataclass(slots=True)
class CompletionStatistics:
    """Counts of one completion. `add` each step as the user got it: what a stop cut off counts nowhere but as drafted.

    cycles: propose / verify / commit rounds
    drafts: rounds that had candidates; draft_tokens: their candidates; accepted_tokens: how many were committed
    accepted_per_position[i]: in how many drafts candidate i was committed
    committed_tokens: tokens of the completion
    """

    mode: Mode
    cycles: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    committed_tokens: int = 0
    _spent: tuple[PassCount, PassCount] | None = None

    def add(self, step: Step) -> None:
        """Count one step."""
        # Everywhere but in speculative mode a cycle begins with a step of its own, the block's first token.
        if self.mode is Mode.SPECULATIVE or (step.tokens and not step.drafted):
            self.cycles += 1
        self.committed_tokens += len(step.tokens)
        if step.drafted:
            self.drafts += 1
            self.draft_tokens += step.drafted
            self.accepted_tokens += step.accepted
            self._count_positions(step)

    def _count_positions(self, step: Step) -> None:
        missing = step.drafted - len(self.accepted_per_position)
        self.accepted_per_position += [0] * missing
        for position in range(step.accepted):
            self.accepted_per_position[position] += 1

    def ended(self, finished: Finished) -> None:
        """The models' own report. A completion cut short by a stop string has none, and needs none to be counted."""
        # Steps do not show a last cycle that gave nothing but a stop id; the report misses cycles of a lost replica.
        self.cycles = max(self.cycles, finished.cycles)
        self._spent = (finished.proposer, finished.verifier)

    @property
    def proposer_passes(self) -> int:
        """Forward passes of the proposer, prefill included; without a report, those that the steps account for."""
        seen = self.cycles + (self.drafts if self.mode is Mode.LOSSLESS else 0)
        return seen if self._spent is None else max(seen, self._spent[0].passes)

    @property
    def verifier_passes(self) -> int:
        """As `proposer_passes`."""
        if self._spent is not None:
            return self._spent[1].passes
        return {Mode.PROVE: self.drafts, Mode.SPECULATIVE: self.draft_tokens}.get(self.mode, 0)

    @property
    def pass_seconds(self) -> float | None:
        """Seconds in forward passes of both roles; None without a report."""
        return None if self._spent is None else sum(count.pass_seconds for count in self._spent)
