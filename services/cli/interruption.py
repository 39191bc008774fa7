"""Ctrl-C as a wish that long work honours between two of its steps."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from services.cli.errors import STDERR

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Before work is `under_way` a signal raises KeyboardInterrupt; then the first only sets `wished`, the next raises.

    `number` is the signal that came.
    """

    def __init__(self) -> None:
        self.under_way = False
        self.wished = False
        self.number: int = signal.SIGINT

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM this way; turns KeyboardInterrupt into exit code 128 + the signal's number."""
        previous = {number: signal.signal(number, self._receive) for number in SIGNALS}
        try:
            yield
        except KeyboardInterrupt:
            raise typer.Exit(128 + self.number) from None
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self.number = number
        if not self.under_way or self.wished:
            raise KeyboardInterrupt
        self.wished = True
        STDERR.print("stopping after this step ... (again: at once)", style="dim")
