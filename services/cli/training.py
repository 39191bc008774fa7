"""What the training commands share: the display of a run, its end, and what to type next."""

from collections.abc import Callable, Sequence
from pathlib import Path
from shlex import quote
from typing import Protocol, TypeVar

import typer
import yaml

from prove_core.config import ModelConfig
from prove_core.errors import DataError
from prove_core.model.progress import Progress
from prove_core.training.config import ProposerTraining, Run
from prove_core.training.metrics import Listener, Report
from prove_core.training.plot import check_plots, plot, read_metrics
from services.cli.durations import in_words
from services.cli.errors import STDERR
from services.cli.interruption import Interruption
from services.cli.progress import Display, reporting

R_contra = TypeVar("R_contra", bound=Run, contravariant=True)
CURVE = "curve.png"


class Train(Protocol[R_contra]):
    """`train_proposer` or `train_verifier`."""

    def __call__(
        self,
        config: R_contra,
        data: Sequence[Path],
        out: Path,
        progress: Progress,
        listener: Listener | None,
        stop: Callable[[], bool],
    ) -> Path | None:
        """The result's folder, or None when stopped before the end."""
        ...


class Watch:
    """Shows a run's steps and reports, and hands the wish to stop to it."""

    def __init__(self, progress: Display, interruption: Interruption, steps: int, folder: Path) -> None:
        self._progress = progress
        self._interruption = interruption
        self._steps = steps
        self._folder = folder

    def stop(self) -> bool:
        """Called after each step; says whether it was the last by wish."""
        if not self._interruption.under_way:
            self._interruption.under_way = True
            self._progress.stage("training", self._steps)
            self._progress.advance(self._step())
        self._progress.advance(1)
        return self._interruption.wished

    def report(self, report: Report) -> None:
        """Called every so many steps."""
        self._progress.note(describe(report, self._steps))

    def _step(self) -> int:
        """Where the run began: at its last line of metrics, next to which every checkpoint is written."""
        lines = read_metrics(self._folder)
        return int(lines[-1]["step"]) if lines else 0


def describe(report: Report, steps: int) -> str:
    """A report in a line."""
    prefix = "" if report.prefix is None else f"  L {report.prefix:.2f}"
    pace = f"{report.tokens_per_second:.0f} tokens/s  {in_words(report.eta_seconds)} left"
    return f"step {report.step} of {steps}  loss {report.loss:.3f}{prefix}  {pace}"


def run(train: Train[R_contra], config: R_contra, data: Sequence[Path], out: Path, *, with_plot: bool) -> Path:
    """Train with a display and a plot at the end, and answer the result's folder.

    Ctrl-C (or SIGTERM) ends the command with exit code 128 + the signal's number, after a checkpoint once steps run.
    """
    if with_plot:
        check_plots()
    interruption = Interruption()
    with interruption.watched():
        with reporting(enabled=True) as progress:
            watch = Watch(progress, interruption, config.optimizer.steps, out)
            try:
                result = train(config, data, out, progress, watch.report, watch.stop)
            except OSError as error:
                raise DataError(f"cannot write to {out}: {error}") from error
        if result is None:
            STDERR.print(f"stopped; saved in {out}: the same command goes on", markup=False, soft_wrap=True)
            raise typer.Exit(128 + interruption.number)
    if with_plot:
        plot(read_metrics(out), out / CURVE)
    return result


def trained_model(model: ModelConfig, result: Path) -> ModelConfig:
    """What to load to run a result: the base with the adapter, or the checkpoint that replaces it."""
    folder = str(result.resolve())
    if not (result / "adapter_config.json").exists():
        return model.model_copy(update={"checkpoint": folder, "layers": None})
    base = Path(model.checkpoint).expanduser()
    return model.model_copy(
        update={"checkpoint": str(base.resolve()) if base.is_dir() else model.checkpoint, "adapter": folder}
    )


def naming(model: ModelConfig) -> str:
    """The options that name a model on a command line."""
    adapter = "" if model.adapter is None else f" --adapter {quote(model.adapter)}"
    return f"--checkpoint {quote(model.checkpoint)}{adapter}"


def serving_yaml(config: ProposerTraining, result: Path) -> str:
    """A configuration of `prove serve` for a trained proposer that is its own verifier."""
    return yaml.safe_dump(
        {
            "proposer": {"engine": {"model": as_data(trained_model(config.model, result))}},
            "verifier": None,
            "decoding": {"block_size": config.adapter.block_size},
        },
        sort_keys=False,
    )


def as_data(model: ModelConfig) -> dict[str, object]:
    """The model's settings that are not defaults."""
    return model.model_dump(mode="json", exclude_defaults=True)
