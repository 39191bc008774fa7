"""Whoever wants to know of each pass and each answer, as it happens: histograms need more than counters."""

from typing import Protocol


class EngineObserver(Protocol):
    """Told on the engine's thread: must be quick, and must not raise."""

    def passed(self, rows: int, seconds: float) -> None:
        """A forward pass of `rows` rows has run."""

    def answered(self, queue_seconds: float, prefill_seconds: float | None) -> None:
        """A call is answered; `prefill_seconds` in its passes, if it had to read its session's tokens first."""


class Unobserved:
    """Implements `EngineObserver` for nobody."""

    def passed(self, rows: int, seconds: float) -> None:
        return

    def answered(self, queue_seconds: float, prefill_seconds: float | None) -> None:
        return


UNOBSERVED = Unobserved()
