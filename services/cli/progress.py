"""Progress on stderr: bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as bars
from rich.console import Console

from prove_core.model.progress import SILENT, Progress
from services.cli.errors import STDERR


class Bars:
    """Implements `Progress`: a line per step, with a bar where the amount of work is known."""

    def __init__(self, display: bars.Progress) -> None:
        self._display = display
        self._task: bars.TaskID | None = None

    def stage(self, name: str, total: int | None = None) -> None:
        """Finish the current step and begin the next."""
        self.finish()
        self._task = self._display.add_task(name, total=total)

    def advance(self, amount: int) -> None:
        """Move the current step's bar."""
        if self._task is not None:
            self._display.advance(self._task, amount)

    def finish(self) -> None:
        """Mark the current step as done."""
        if self._task is not None:
            task = self._display.tasks[-1]
            total = task.total if task.total is not None else 1
            self._display.update(self._task, total=total, completed=total)


class Lines:
    """Implements `Progress`: a plain line as each step begins, and one at the end of those whose work is known."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._step: tuple[str, float] | None = None

    def stage(self, name: str, total: int | None = None) -> None:
        """Finish the current step and announce the next."""
        self.finish()
        self._print(f"{name} ...")
        if total is not None:
            self._step = name, time.monotonic()

    def advance(self, amount: int) -> None:
        """Not shown: a log should not fill with it."""

    def finish(self) -> None:
        """Say how long the current step took, if its amount of work was known."""
        if self._step is not None:
            name, began = self._step
            self._step = None
            self._print(f"{name}: done in {time.monotonic() - began:.1f} s")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)  # rich flushes after each print


@contextmanager
def reporting(*, enabled: bool) -> Iterator[Progress]:
    """A progress display that is finished at the end; silent when not `enabled`."""
    if not enabled:
        yield SILENT
        return
    if not STDERR.is_terminal:
        lines = Lines(STDERR)
        yield lines
        lines.finish()
        return
    columns = (
        bars.SpinnerColumn(finished_text="[green]✓[/green]"),
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=30),
        bars.TimeElapsedColumn(),
    )
    with bars.Progress(*columns, console=STDERR) as display:
        shown = Bars(display)
        yield shown
        shown.finish()
