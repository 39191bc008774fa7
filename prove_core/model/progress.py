"""Reporting of slow steps (download, conversion), so that a caller may draw bars. Silent by default."""

from typing import Protocol


class Progress(Protocol):
    """Receives the steps of a slow task, one at a time."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Begin a step, which ends the one before. `total`: its work in bytes, tensors ... as fits; None if unknown."""
        ...

    def advance(self, amount: int) -> None:
        """`amount` more of the current step's work is done."""
        ...


class Silent:
    """Drops every report."""

    def stage(self, name: str, total: int | None = None) -> None:
        """Ignore the step."""

    def advance(self, amount: int) -> None:
        """Ignore the amount."""


SILENT = Silent()
