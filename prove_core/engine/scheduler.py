"""Which windows go into the next pass, and whose pages give way when the pool is short."""

import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from prove_core.config import SchedulerConfig
from prove_core.engine.job import Job
from prove_core.kv.sequence import Sequence
from prove_core.model.window import Window

logger = logging.getLogger(__name__)

SHORT_PREFILL = 64  # catching up on a committed block is decoding, not prefill
PREFILL_SHARE = 4  # while prompts wait, they get at least one row in this many


def widest(config: SchedulerConfig) -> int:
    """Rows that calls which are about to be answered may take of a pass while prompts are being read."""
    return config.max_rows - config.max_rows // PREFILL_SHARE


@dataclass(frozen=True, slots=True)
class Planned:
    """A window and the job it belongs to."""

    job: Job
    window: Window


class Scheduler:
    """Continuous batching: calls about to yield logits first, in order of arrival, then prefill chunks.

    When the pool has no pages for a window, in this order: idle prefix-cache pages go (inside the pool), then the
    youngest session that is not in this pass is preempted, if it is younger than the one in need; else the window
    waits. If nothing at all could be packed, idle sessions give way whatever their age, so the oldest job always runs.
    A preempted session keeps its tokens and is prefilled again at its next call.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._config = config
        self._jobs: dict[str, Job] = {}  # by session, in order of arrival
        self.sessions: dict[str, Sequence] = {}  # oldest first
        self.preemptions = 0
        self.prefix_queried = 0  # tokens
        self.prefix_hits = 0  # tokens
        self.starved = False  # whether the latest pass lacks a call, or cost a session its KV, for want of pages
        self._short: set[str] = set()  # sessions whose last window found too few pages
        self._warned = -60.0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def widest(self) -> int:
        """See the function of this name."""
        return widest(self._config)

    @property
    def jobs(self) -> list[Job]:
        """Queued calls in order of arrival."""
        return list(self._jobs.values())

    def open(self, session: str, sequence: Sequence) -> None:
        """Know a session from now on; it is the youngest."""
        self.sessions[session] = sequence

    def close(self, session: str) -> None:
        """Forget a session with its queued call, and free its pages. Unknown: a no-op."""
        self._jobs.pop(session, None)
        sequence = self.sessions.pop(session, None)
        if sequence is not None:
            sequence.release()

    def add(self, job: Job) -> None:
        """Queue a call of an open session that has none queued."""
        if self.sessions.get(job.session) is not job.sequence:
            raise AssertionError(f"session {job.session} is not open")
        self._jobs[job.session] = job

    def remove(self, session: str) -> Job | None:
        """Forget the queued call of a session: it is answered or aborted."""
        return self._jobs.pop(session, None)

    def pack(self) -> list[Planned]:
        """Windows for the next pass, with their pages reserved; empty when no call is queued."""
        preempted = self.preemptions
        planned = self._pack(forced=False) or self._pack(forced=True)
        self.starved = bool(self._short) or self.preemptions > preempted
        if self.starved:
            self._warn()
        for plan in planned:
            if plan.job.started is None:
                plan.job.started = time.perf_counter()
        return planned

    def _pack(self, *, forced: bool) -> list[Planned]:
        jobs = self._admitted()
        ready: list[Job] = []
        prompts: list[Job] = []
        for job in jobs:
            (prompts if job.prefill > SHORT_PREFILL else ready).append(job)
        rows = self._config.max_rows
        reserved = rows // PREFILL_SHARE if prompts else 0
        planned: list[Planned] = []
        spent = self._take(ready, rows - reserved, planned, forced)
        self._take(prompts, rows - spent, planned, forced)
        return planned

    def _admitted(self) -> list[Job]:
        """Queued calls, less those that would take a session's first pages while an older one lacks some."""
        short, self._short = self._short & self._jobs.keys(), set()
        if not short:
            return self.jobs
        names = list(self.sessions)
        younger = set(names[min(map(names.index, short)) + 1 :])
        return [job for job in self._jobs.values() if job.sequence.pages or job.session not in younger]

    def _take(self, jobs: list[Job], rows: int, planned: list[Planned], forced: bool) -> int:
        """Pack windows of `jobs` into `rows` rows; returns the rows used."""
        spent = 0
        for job in jobs:
            if not job.sequence.pages:
                self._attach_prefix(job)
            window = job.window(rows - spent, self._config.prefill_chunk)
            if window is None:
                break
            if self._reserve(job, window.length, planned, forced):
                planned.append(Planned(job, window))
                spent += window.rows
            else:
                self._short.add(job.session)
        return spent

    def _attach_prefix(self, job: Job) -> None:
        job.sequence.attach_prefix()
        if not job.cold:  # once per call, however long it waits for pages
            job.cold = True
            self.prefix_queried += len(job.sequence.tokens)
            self.prefix_hits += len(job.sequence.cached)

    def _reserve(self, job: Job, length: int, planned: list[Planned], forced: bool) -> bool:
        """Pages for `length` positions, preempting only if that makes enough of them."""
        if job.sequence.reserve(length):
            return True
        missing = job.sequence.missing(length)
        victims: list[Sequence] = []
        given: Counter[int] = Counter()
        for sequence in self._candidates(job, planned, forced and not planned):
            victims.append(sequence)
            missing -= sequence.gain(given)
            if missing <= 0:
                break
        else:
            return False
        for victim in victims:
            victim.release()
        self.preemptions += len(victims)
        return job.sequence.reserve(length)

    def _candidates(self, job: Job, planned: list[Planned], forced: bool) -> Iterator[Sequence]:
        """Sessions with pages that may be preempted for `job`: younger ones, youngest first; if forced, idle ones."""
        packed = {id(plan.job.sequence) for plan in planned}
        busy = {id(other.sequence) for other in self._jobs.values()}
        younger = True
        for sequence in reversed(self.sessions.values()):
            if sequence is job.sequence:
                younger = False
            elif sequence.pages and id(sequence) not in packed and (younger or (forced and id(sequence) not in busy)):
                yield sequence

    def _warn(self) -> None:
        """A starved pool is loud, but not once per pass."""
        now = time.monotonic()
        if now - self._warned >= 10.0:
            self._warned = now
            logger.warning(
                "KV pool starved: %d of %d calls wait for pages, %d preemptions so far; give it more tokens",
                len(self._short),
                len(self._jobs),
                self.preemptions,
            )
