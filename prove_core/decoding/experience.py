"""What came true of what was foreseen."""

from dataclasses import dataclass

PRIOR_WEIGHT = 64.0  # tokens that count as foreseen rightly before anything is known


@dataclass(slots=True)
class Experience:
    """Running sums, `came` of what was `foreseen`. Each counts `memory` times as much as the one after it."""

    memory: float
    came: float = PRIOR_WEIGHT
    foreseen: float = PRIOR_WEIGHT

    @property
    def ratio(self) -> float:
        """How much of it came true: 1 where it was right."""
        return self.came / self.foreseen if self.foreseen > 0.0 else 1.0

    def add(self, came: float, foreseen: float, memory: float | None = None) -> None:
        """One more. `memory`, if given, is used in place of its own."""
        kept = self.memory if memory is None else memory
        self.came = kept * self.came + came
        self.foreseen = kept * self.foreseen + foreseen

    def fade(self) -> None:
        """Nothing was foreseen: what is known grows old."""
        self.add((1.0 - self.memory) * PRIOR_WEIGHT, (1.0 - self.memory) * PRIOR_WEIGHT)


_MEAN_MEMORY = 0.98


@dataclass(slots=True)
class Mean:
    """A running mean of what passes were worth, each of which several completions plan for."""

    value: float = 0.0

    def add(self, value: float, completions: float) -> None:
        """What one of so many has planned; fewer than one where only some passes are looked at."""
        self.value += (1.0 - _MEAN_MEMORY) / completions * (value - self.value)
