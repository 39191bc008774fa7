"""What an engine tells of itself: counters since its start, and gauges of the moment."""

from dataclasses import dataclass

from prove_core.decoding.controller import Controller
from prove_core.engine.recent import Recent
from prove_core.engine.scheduler import Scheduler
from prove_core.kv.pool import PagePool


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot. Seconds since start: `pass_seconds` in forward passes alone, `busy_seconds` with their packing.

    Mode `auto`, counted per completion and pass: `auto_ar` of them plain AR, `auto_proposing` with drafts or
    placeholders, `auto_rows` rows planned for both.
    `queued_rows`: still to run for the calls that wait; `queue_wait_p90`: of the calls answered lately, in seconds.
    Of the `free_pages` some are `idle_pages`: only the prefix cache remembers them. It was asked for
    `prefix_queried_tokens` and had `prefix_hit_tokens`. `starved_seconds`: passes that some call missed for want of
    pages. Of the `waiting_calls` some are `running_calls`: between two of their passes.
    """

    sessions: int = 0
    waiting_calls: int = 0
    free_pages: int = 0
    total_pages: int = 0
    passes: int = 0
    rows: int = 0
    preemptions: int = 0
    pass_seconds: float = 0.0
    busy_seconds: float = 0.0
    auto_ar: int = 0
    auto_proposing: int = 0
    auto_rows: int = 0
    queued_rows: int = 0
    queue_wait_p90: float = 0.0
    running_calls: int = 0
    idle_pages: int = 0
    prefix_queried_tokens: int = 0
    prefix_hit_tokens: int = 0
    starved_seconds: float = 0.0

    @property
    def auto_mean_rows(self) -> float:
        """Rows that a pass of a completion in mode `auto` has had, on average; 0 before the first."""
        return self.auto_rows / max(self.auto_ar + self.auto_proposing, 1)


@dataclass(slots=True)
class Counters:
    """What the engine counts of its passes itself."""

    passes: int = 0
    rows: int = 0
    pass_seconds: float = 0.0
    busy_seconds: float = 0.0
    starved_seconds: float = 0.0


def snapshot(
    pool: PagePool, scheduler: Scheduler, controller: Controller, counters: Counters, waits: Recent
) -> EngineStats:
    """All of it as of now. `waits`: seconds that calls answered lately stood in the queue."""
    return EngineStats(
        sessions=len(scheduler.sessions),
        waiting_calls=len(scheduler),
        free_pages=pool.available,
        total_pages=pool.pages,
        passes=counters.passes,
        rows=counters.rows,
        preemptions=scheduler.preemptions,
        pass_seconds=counters.pass_seconds,
        busy_seconds=counters.busy_seconds,
        auto_ar=controller.choices.ar,
        auto_proposing=controller.choices.proposing,
        auto_rows=controller.choices.rows,
        queued_rows=sum(job.rows for job in scheduler.jobs),
        queue_wait_p90=waits.quantile(0.9),
        running_calls=sum(job.started is not None for job in scheduler.jobs),
        idle_pages=pool.idle,
        prefix_queried_tokens=scheduler.prefix_queried,
        prefix_hit_tokens=scheduler.prefix_hits,
        starved_seconds=counters.starved_seconds,
    )
