"""Which windows go into the next pass, and whose pages give way when the pool is short."""

import logging
import time
from dataclasses import dataclass

from prove_core.config import SchedulerConfig
from prove_core.engine.job import Job
from prove_core.kv.sequence import Sequence
from prove_core.model.window import Window

logger = logging.getLogger(__name__)

SHORT_PREFILL = 64  # catching up on a committed block is decoding, not prefill
PREFILL_SHARE = 4  # while prompts wait, they get at least one row in this many


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
        self._warned = -60.0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def jobs(self) -> list[Job]:
        """Queued calls in order of arrival."""
        return list(self._jobs.values())

    def add(self, job: Job) -> None:
        """Queue a call of a session in `sessions` that has none queued."""
        self._jobs[job.session] = job

    def remove(self, session: str) -> Job | None:
        """Forget the queued call of a session: it is answered or aborted."""
        return self._jobs.pop(session, None)

    def pack(self) -> list[Planned]:
        """Windows for the next pass, with their pages reserved; empty when nothing can run."""
        ready = [job for job in self._jobs.values() if job.prefill <= SHORT_PREFILL]
        prompts = [job for job in self._jobs.values() if job.prefill > SHORT_PREFILL]
        rows = self._config.max_rows
        reserved = rows // PREFILL_SHARE if prompts else 0
        planned: list[Planned] = []
        spent = self._take(ready, rows - reserved, planned)
        spent += self._take(prompts, rows - spent, planned)
        for plan in planned:
            if plan.job.started is None:
                plan.job.started = time.perf_counter()
        return planned

    def _take(self, jobs: list[Job], rows: int, planned: list[Planned]) -> int:
        """Pack windows of `jobs` into `rows` rows; returns the rows used."""
        spent = 0
        for job in jobs:
            if not job.sequence.pages:
                job.sequence.attach_prefix()
            window = job.window(rows - spent, self._config.prefill_chunk)
            if window is None:
                break
            if self._reserve(job, window.length, planned):
                planned.append(Planned(job, window))
                spent += window.rows
        return spent

    def _reserve(self, job: Job, length: int, planned: list[Planned]) -> bool:
        while not job.sequence.reserve(length):
            victim = self._victim(job, planned)
            if victim is None:
                return False
            self.preemptions += 1
            self._warn()
            victim.release()
        return True

    def _victim(self, job: Job, planned: list[Planned]) -> Sequence | None:
        """The youngest session with pages that may be preempted for `job`."""
        packed = {id(plan.job.sequence) for plan in planned}
        for sequence in reversed(self.sessions.values()):
            if sequence is job.sequence:
                break
            if sequence.pages and id(sequence) not in packed:
                return sequence
        if planned:
            return None
        busy = {id(other.sequence) for other in self._jobs.values()}
        for sequence in reversed(self.sessions.values()):
            if sequence.pages and sequence is not job.sequence and id(sequence) not in busy:
                return sequence
        return None

    def _warn(self) -> None:
        """A starved pool is loud, but not once per pass."""
        now = time.monotonic()
        if now - self._warned >= 10.0:
            self._warned = now
            logger.warning("KV pool starved: %d preemptions so far; give it more tokens", self.preemptions)
