"""What decoding did for one completion, counted from the steps its user got."""

from dataclasses import dataclass, field

from prove_core.types import Cost, Finished, Mode, Step


@dataclass(slots=True)
class CompletionStatistics:
    """Counts of one completion. `add` each step as the user got it: what a stop cut off counts nowhere but as drafted.

    drafts: rounds that had candidates; draft_tokens: their candidates; accepted_tokens: how many were committed
    accepted_per_position[i]: in how many drafts candidate i was committed
    committed_tokens: tokens of the completion
    cost: cycles, passes of each role (prefill included), seconds in them
    degraded_from: tokens before the first that was decoded without the verifier that its mode needs; None: no such
    """

    mode: Mode
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    committed_tokens: int = 0
    cost: Cost = field(default_factory=Cost)
    degraded_from: int | None = None

    def add(self, step: Step) -> None:
        """Count one step."""
        self.cost += step.cost
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

    def degraded(self) -> None:
        """From here on, for a while at least, the completion does without its verifier."""
        if self.degraded_from is None:
            self.degraded_from = self.committed_tokens

    def ended(self, finished: Finished) -> None:
        """Count what came after the last step. A completion cut short by a stop string has no such end."""
        self.cost += finished.cost
