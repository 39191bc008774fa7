"""What proposing has come to lately, seen from plain AR in the same company."""

from dataclasses import dataclass

PRIOR_GAIN = 1.5  # over plain AR, expected of what was never tried: or it never would be
PRIOR_WEIGHT = 8.0  # passes that this expectation counts as


@dataclass(slots=True)
class Experience:
    """Running sums over passes: `tokens` committed, and `cost` in plain AR passes of as many completions.

    Each pass counts `memory` times as much as the one after it.
    """

    memory: float
    tokens: float = PRIOR_GAIN * PRIOR_WEIGHT
    cost: float = PRIOR_WEIGHT

    @property
    def gain(self) -> float:
        """Times as fast as plain AR."""
        return self.tokens / self.cost

    def add(self, tokens: int, cost: float, memory: float = 1.0) -> None:
        """One more pass. `memory`, where it is less than its own, lets this pass count for more."""
        kept = min(memory, self.memory)
        self.tokens = kept * self.tokens + tokens
        self.cost = kept * self.cost + cost

    def copy(self, memory: float) -> "Experience":
        """The same gain, to go on from with another memory."""
        weight = min(1.0, (1.0 - self.memory) / (1.0 - memory))
        return Experience(memory, self.tokens * weight, self.cost * weight)
