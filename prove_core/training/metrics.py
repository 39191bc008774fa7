"""Training metrics: one JSON line per report, and never a line twice after a resume."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from prove_core.training.task import Pass

FILE = "metrics.jsonl"


@dataclass(frozen=True, slots=True)
class Report:
    """Means over the steps since the last report. `nll` and `match` are over known targets, per placeholder position
    (one value, for the next token, in AR training).

    `prefix` is the AR-matching prefix on the training data (1 + leading matches) over full-length blocks whose targets
    are all known, None in AR training and while there was no such block; `tokens_per_second` counts answer tokens
    visited; `eta_seconds` is for the rest at this pace.
    """

    step: int
    answer_tokens: int
    loss: float
    nll: tuple[float, ...]
    match: tuple[float, ...]
    prefix: float | None
    learning_rate: float
    tokens_per_second: float
    eta_seconds: float


Listener = Callable[[Report], None]


class Tally:
    """Sums over the passes since the last report."""

    def __init__(self, width: int, *, is_block: bool) -> None:
        self._width = width
        self._is_block = is_block
        self.clear()

    def clear(self) -> None:
        """Start a new interval."""
        self.steps = 0
        self.answer_tokens = 0
        self.loss = 0.0
        self._nll = torch.zeros(self._width)
        self._match = torch.zeros(self._width)
        self._known = torch.zeros(self._width)
        self._prefix = torch.zeros(2)

    def add(self, done: Pass) -> None:
        """Add one pass, of at most W positions."""
        nll, match, known = done.nll.cpu(), done.match.cpu(), done.known.cpu()
        width = known.shape[1]
        self._nll[:width] += (nll * known).sum(0)
        self._match[:width] += match.float().sum(0)
        self._known[:width] += known.float().sum(0)
        if self._is_block and width == self._width:
            leading = match[known.all(-1)].long().cumprod(-1).sum(-1)
            self._prefix += torch.tensor([float((1 + leading).sum()), float(len(leading))])

    @property
    def prefix(self) -> float | None:
        """Mean AR-matching prefix."""
        total, blocks = self._prefix.tolist()
        return round(total / blocks, 4) if blocks else None

    def means(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean nll and match rate per position."""
        count = self._known.clamp(min=1)
        return _rounded(self._nll / count), _rounded(self._match / count)


def _rounded(values: Tensor) -> tuple[float, ...]:
    return tuple(round(value, 4) for value in values.tolist())


def append(folder: Path, report: Report) -> None:
    """Add a line to the run's metrics."""
    with (folder / FILE).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(report)) + "\n")


def cut(folder: Path, step: int) -> None:
    """Forget lines beyond `step`, which a resumed run writes again, and a last line that a kill left half written."""
    path = folder / FILE
    if path.exists():
        whole = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("}\n")]
        path.write_text("".join(line for line in whole if json.loads(line)["step"] <= step), encoding="utf-8")
