"""Progress on stderr: bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich import progress as bars
from rich.console import Console
from rich.markup import escape

from prove_core.model.progress import Progress, Silent
from services.cli.errors import STDERR

NOTE_S = 10.0  # between two notes in a log


class Display(Progress, Protocol):
    """Progress that can also say how the current step goes."""

    def note(self, text: str) -> None:
        """Show this, in place of the last note."""
        ...


class Quiet(Silent):
    """Drops every report and note."""

    def note(self, text: str) -> None:
        """Ignore it."""


class Bars:
    """Implements `Display`: a line per step, with a bar where the amount of work is known."""

    def __init__(self, display: bars.Progress) -> None:
        self._display = display
        self._task: bars.TaskID | None = None

    def stage(self, name: str, total: int | None = None) -> None:
        """Finish the current step and begin the next."""
        self.finish()
        self._task = self._display.add_task(escape(name), total=total, note="")

    def advance(self, amount: int) -> None:
        """Move the current step's bar."""
        if self._task is not None:
            self._display.advance(self._task, amount)

    def note(self, text: str) -> None:
        """Show `text` behind the current step's bar."""
        if self._task is not None:
            self._display.update(self._task, note=text)

    def finish(self) -> None:
        """Mark the current step as done."""
        if self._task is not None:
            task = self._display.tasks[-1]
            total = task.total if task.total is not None else 1
            self._display.update(self._task, total=total, completed=total)


class Lines:
    """Implements `Display`: a plain line as each step begins, and one at the end of those whose work is known.

    Notes are lines as well, one in `NOTE_S` at most, and the last.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._step: tuple[str, float] | None = None
        self._noted = float("-inf")
        self._held = ""

    def stage(self, name: str, total: int | None = None) -> None:
        """Finish the current step and announce the next."""
        self.finish()
        self._print(f"{name} ...")
        if total is not None:
            self._step = name, time.monotonic()

    def advance(self, amount: int) -> None:
        """Not shown: a log should not fill with it."""

    def note(self, text: str) -> None:
        """Print `text`, or hold it back until the step's end if the last note was a moment ago."""
        now = time.monotonic()
        self._held = text
        if now - self._noted >= NOTE_S:
            self._noted = now
            self._release()

    def _release(self) -> None:
        if self._held:
            self._print(self._held)
            self._held = ""

    def finish(self) -> None:
        """Say how long the current step took, if its amount of work was known."""
        self._release()
        if self._step is not None:
            name, began = self._step
            self._step = None
            self._print(f"{name}: done in {time.monotonic() - began:.1f} s")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, soft_wrap=True)  # rich flushes after each print


@contextmanager
def reporting(*, enabled: bool) -> Iterator[Display]:
    """A progress display that is finished at the end; silent when not `enabled`."""
    if not enabled:
        yield Quiet()
        return
    if not STDERR.is_terminal:
        lines = Lines(STDERR)
        yield lines
        lines.finish()
        return
    with bars.Progress(*bar_columns(), console=STDERR) as display:
        shown = Bars(display)
        yield shown
        shown.finish()


def bar_columns() -> tuple[bars.ProgressColumn, ...]:
    """What a line of `Bars` shows."""
    return (
        bars.SpinnerColumn(finished_text="[green]✓[/green]"),
        bars.TextColumn("{task.description}"),
        bars.BarColumn(bar_width=30),
        bars.TimeElapsedColumn(),
        bars.TextColumn("[dim]{task.fields[note]}"),
    )
