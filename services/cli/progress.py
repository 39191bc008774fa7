"""Progress bars on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as bars

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


@contextmanager
def reporting(*, enabled: bool) -> Iterator[Progress]:
    """A progress display that is finished at the end; silent when not `enabled`."""
    if not enabled:
        yield SILENT
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
