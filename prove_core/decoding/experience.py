"""What proposing has come to lately: tokens per second of a completion that shares its passes."""

from dataclasses import dataclass

PRIOR_GAIN = 1.5  # over plain AR, expected of what was never tried: or it never would be
PRIOR_WEIGHT = 8.0  # passes that this expectation counts as


@dataclass(slots=True)
class Experience:
    """Running sums over passes, each worth `memory` of the one after it. Starts as hopeful as the prior."""

    tokens: float
    seconds: float
    memory: float

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    def add(self, tokens: int, seconds: float) -> None:
        """One more pass: what it committed, and what a pass in which all do the same costs."""
        self.tokens = self.memory * self.tokens + tokens
        self.seconds = self.memory * self.seconds + seconds

    def copy(self, memory: float) -> "Experience":
        """The same rate, to go on from with another memory."""
        weight = min(1.0, (1.0 - self.memory) / (1.0 - memory))
        return Experience(self.tokens * weight, self.seconds * weight, memory)


def hopeful(ar_seconds: float, memory: float) -> Experience:
    """Before the first pass; `ar_seconds` is a plain AR pass."""
    return Experience(PRIOR_GAIN * PRIOR_WEIGHT, PRIOR_WEIGHT * ar_seconds, memory)
