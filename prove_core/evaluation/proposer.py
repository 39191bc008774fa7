"""The AR-matching prefix of an adapter folder, on prompts that the stock model answers first."""

from collections.abc import Sequence
from pathlib import Path

from prove_core.config import ModelConfig
from prove_core.errors import CheckpointError
from prove_core.evaluation.prefix import PrefixFigures, measure
from prove_core.model.adapters import check_base, read_adapter
from prove_core.model.loader import load
from prove_core.model.progress import SILENT, Progress
from prove_core.model.source import resolve
from prove_core.training.dataset import Example
from prove_core.training.export import load_proposer


def measure_adapter(
    model: ModelConfig,
    trajectories: Sequence[Example],
    block_sizes: Sequence[int],
    *,
    stride: int = 4,
    progress: Progress = SILENT,
) -> list[PrefixFigures]:
    """Figures of `model.adapter` at each block size along `trajectories`: prompts and the stock model's greedy answers.

    Raises CheckpointError when the adapter is not gated, is missing or belongs to another base.
    """
    if model.adapter is None:
        raise CheckpointError("no adapter to measure: name its folder")
    folder = Path(model.adapter).expanduser()
    check_base(read_adapter(str(folder)), resolve(model.checkpoint, progress))
    loaded = load(model.model_copy(update={"adapter": None}), progress, attention="sdpa")
    proposer = load_proposer(loaded.model, folder)
    return [measure(proposer, trajectories, size, stride=stride) for size in block_sizes]
