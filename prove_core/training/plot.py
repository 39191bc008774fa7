"""A run's metrics as a picture. Needs matplotlib (the extra `train`)."""

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prove_core.errors import ProveError
from prove_core.training.metrics import FILE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Line = Mapping[str, Any]


def check_plots() -> None:
    """Raise ProveError where matplotlib is missing: before a run of hours, not after it."""
    if find_spec("matplotlib") is None:
        raise ProveError("plots need matplotlib: pip install 'prove-serve[train]', or give --no-plot")


def read_metrics(folder: Path) -> list[Line]:
    """The lines of a run's metrics, without a last one that is still being written; none before the first report."""
    path = folder / FILE
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


def plot(lines: Sequence[Line], path: Path) -> None:
    """Loss, match by place in the block and, of block training, L, each against answer tokens seen."""
    from matplotlib.figure import Figure  # noqa: PLC0415  optional

    is_block = any(line["prefix"] is not None for line in lines)
    panels = 3 if is_block else 2
    figure = Figure(figsize=(5 * panels, 4), layout="constrained")
    axes: Sequence[Axes] = figure.subplots(1, panels)
    tokens = [line["answer_tokens"] for line in lines]
    axes[0].plot(tokens, [line["loss"] for line in lines])
    _label(axes[0], "loss")
    for place in range(len(lines[-1]["match"]) if lines else 0):
        name = f"token {place + 2} of the block" if is_block else "next token"
        axes[1].plot(tokens, [line["match"][place] for line in lines], label=name)
    _label(axes[1], "share that match the answer")
    if lines:
        axes[1].legend(fontsize="small")
    if is_block:
        known = [line for line in lines if line["prefix"] is not None]
        axes[2].plot([line["answer_tokens"] for line in known], [line["prefix"] for line in known])
        _label(axes[2], "L: tokens of a block that match, from its first")
    figure.savefig(path, dpi=120)


def _label(axes: "Axes", title: str) -> None:
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("answer tokens seen")
    axes.grid(alpha=0.3)
