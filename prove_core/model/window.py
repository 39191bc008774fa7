"""Windows: what one forward pass is made of (design: everything is a window)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from prove_core.types import Floor, TokenIds


@dataclass(frozen=True, slots=True)
class Window:
    """One sequence's rows in a pass: `tokens`, then `placeholders` placeholder rows, at consecutive positions.

    `tokens[i]` sits at position `start + i`; the KV of positions below `start` is valid in `pages`, and the pass leaves
    that of `tokens` there too. Placeholder KV is scratch: the next pass overwrites it. `pages` covers every position.
    The last `logits` rows want an output (0: a prefill chunk); `targets[i]` is an id to score at the i-th of them.
    """

    tokens: Sequence[int]
    start: int
    pages: Sequence[int]
    placeholders: int = 0
    logits: int = 0
    targets: TokenIds = ()
    floor: Floor | None = None

    @property
    def rows(self) -> int:
        """Rows this window adds to the pass."""
        return len(self.tokens) + self.placeholders

    @property
    def length(self) -> int:
        """Positions the window's last row sees, itself included."""
        return self.start + self.rows


@dataclass(frozen=True, slots=True)
class WindowOutput:
    """Per logits row: its argmax id and that id's probability; per target: its probability at its row.

    Probabilities are float32 softmax at temperature 1 over the ids the tokenizer has, less banned ones.
    """

    argmax: TokenIds
    confidences: tuple[float, ...]
    probabilities: tuple[float, ...]


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
