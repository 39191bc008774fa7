"""Training metrics: one JSON line per report, and never a line twice after a resume."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

FILE = "metrics.jsonl"


@dataclass(frozen=True, slots=True)
class Report:
    """Means over the steps since the last report. `nll` and `match` are per placeholder position, over known targets.

    `prefix` is the AR-matching prefix on the training data (1 + leading matches) over full-length blocks whose targets
    are all known; `tokens_per_second` counts answer tokens visited; `eta_seconds` is for the rest at this pace.
    """

    step: int
    answer_tokens: int
    loss: float
    nll: tuple[float, ...]
    match: tuple[float, ...]
    prefix: float
    learning_rate: float
    tokens_per_second: float
    eta_seconds: float


Listener = Callable[[Report], None]


class Tally:
    """Sums over the passes since the last report."""

    def __init__(self, width: int) -> None:
        self._width = width
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

    def add(self, nll: Tensor, match: Tensor, known: Tensor) -> None:
        """Add one pass: all [blocks, w] with w <= W."""
        width = known.shape[1]
        self._nll[:width] += (nll * known).sum(0)
        self._match[:width] += match.float().sum(0)
        self._known[:width] += known.float().sum(0)
        whole = known.all(-1) if width == self._width else torch.zeros(len(known), dtype=torch.bool)
        self._prefix += torch.stack((1 + match[whole].long().cumprod(-1).sum(-1), torch.ones(int(whole.sum())))).sum(-1)

    @property
    def prefix(self) -> float:
        """Mean AR-matching prefix."""
        total, blocks = float(self._prefix[0]), float(self._prefix[1])
        return round(total / max(1.0, blocks), 4)

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
