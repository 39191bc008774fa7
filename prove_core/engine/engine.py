"""The engine of one replica: one thread, one model, one KV pool, many sessions."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from prove_core.config import EngineConfig
from prove_core.decoding.controller import Controller
from prove_core.decoding.cycle import TWO_MODEL_MODES
from prove_core.decoding.session_planner import planner_for
from prove_core.engine.beat import Beat
from prove_core.engine.completion import Emit, LocalCompletion
from prove_core.engine.job import Done, Job
from prove_core.engine.observer import UNOBSERVED, EngineObserver
from prove_core.engine.recent import Recent
from prove_core.engine.scheduler import Planned, Scheduler
from prove_core.engine.stats import Counters, EngineStats, snapshot
from prove_core.errors import EngineStopped, PassFailed, PoolExhausted, ProveError, RanksLost, RequestError, StaleCommit
from prove_core.kv.pool import PagePool
from prove_core.kv.sequence import Sequence
from prove_core.model.window import Runner, Window
from prove_core.types import CallRequest, CallResult, GenerateRequest

logger = logging.getLogger(__name__)

T = TypeVar("T")

RECENT_S = 5.0  # calls that were answered before that say nothing about today's queue


@dataclass(slots=True)
class _Inbox:
    """Work handed to the engine thread. Closed once the thread has ended."""

    queue: "queue.SimpleQueue[Callable[[], None]]" = field(default_factory=queue.SimpleQueue)
    lock: threading.Lock = field(default_factory=threading.Lock)
    closed: bool = False

    def put(self, work: Callable[[], None]) -> None:
        with self.lock:
            if self.closed:
                raise EngineStopped("the engine has stopped")
            self.queue.put(work)


class Engine:
    """Runs calls and whole completions of many sessions in shared forward passes.

    Every method may be called from any thread; `done` and `emit` run on the engine thread and must not block.
    `controller` decides in mode `auto`; without one all passes count as alike.
    """

    def __init__(
        self, runner: Runner, config: EngineConfig, *, name: str = "engine", controller: Controller | None = None
    ) -> None:
        self._runner = runner
        self._pool = PagePool(config.cache.pages, config.cache.page_size, prefix_cache=config.cache.prefix_cache)
        self._scheduler = Scheduler(config.scheduler)
        self._controller = Controller(max_rows=self._scheduler.widest) if controller is None else controller
        self._inbox = _Inbox()
        self._counters = Counters()
        self._waits = Recent(RECENT_S)
        self._observer: EngineObserver = UNOBSERVED
        self._beat = Beat()
        self._stopping = False
        self._ended: float | None = None  # when the latest pass did, if there was work ever since
        self._completions: set[str] = set()  # sessions that a completion of ours drives
        self._new: dict[str, LocalCompletion] = {}  # of them, those that begin once all that came with them is here
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)

    @property
    def capacity(self) -> int:
        """Tokens the KV pool holds."""
        return self._pool.pages * self._pool.page_size

    @property
    def alive(self) -> bool:
        """Whether the engine thread runs."""
        return self._thread.is_alive()

    @property
    def pass_age_s(self) -> float:
        """Seconds that the engine thread has been at its present pass; 0 while it has nothing to do."""
        return self._beat.age_s

    @property
    def failures(self) -> int:
        """Passes that failed since one succeeded."""
        return self._beat.failures

    def start(self) -> None:
        """Start the engine thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the engine thread after the pass in progress; whatever is unanswered fails with EngineStopped."""
        try:
            self._inbox.put(self._request_stop)
        except EngineStopped:
            return
        self._thread.join()

    def call(self, request: CallRequest, done: Done) -> None:
        """Run one call of a session; `done` gets its result or a ProveError. Raises EngineStopped."""
        self._inbox.put(lambda: self._call(request, done))

    def generate(self, request: GenerateRequest, emit: Emit) -> None:
        """Decode a whole completion; `emit` gets its steps, then Finished or a ProveError. Raises EngineStopped."""
        self._inbox.put(lambda: self._start_completion(request, emit))

    def release(self, session: str) -> None:
        """Abort whatever runs on `session` and free its pages. It answers nothing further. Unknown: a no-op."""
        try:
            self._inbox.put(lambda: self._release(session))
        except EngineStopped:
            return

    def observe(self, observer: EngineObserver) -> None:
        """Tell `observer` of passes and answers from now on."""
        self._observer = observer

    def stats(self) -> EngineStats:
        """Counters and gauges as of now."""
        return snapshot(self._pool, self._scheduler, self._controller, self._counters, self._waits)

    def _loop(self) -> None:
        try:
            while not self._stopping:
                self._drain()
                planned = self._scheduler.pack()
                if planned:
                    self._run(planned)
                elif len(self._scheduler):
                    raise AssertionError("calls are waiting and none can run")
        except BaseException:
            logger.exception("the engine thread failed")
            raise
        finally:
            self._close()

    def _drain(self) -> None:
        """Take in new work; blocks while there is nothing else to do."""
        inbox = self._inbox.queue
        if not len(self._scheduler):
            if not self._scheduler.sessions:
                self._pool.check([])
            self._beat.idle()
            self._ended = None
            work = inbox.get()
            self._beat.began()
            work()
        while not inbox.empty() and not self._stopping:
            inbox.get()()
        self._begin_completions()

    def _run(self, planned: list[Planned]) -> None:
        began = time.perf_counter()
        self._beat.began()
        try:
            output = self._runner.run([plan.window for plan in planned])
        except RanksLost:
            raise  # ends the engine: no later pass can succeed
        except Exception as error:
            self._beat.failures += 1
            logger.exception("a forward pass failed", extra={"sessions": [plan.job.session for plan in planned]})
            if len(planned) > 1:  # whoever is to blame fails alone
                for plan in planned:
                    self._run([plan])
                return
            self._fail([plan.job for plan in planned], PassFailed(f"the forward pass failed: {error}"))
            return
        self._beat.failures = 0
        seconds = time.perf_counter() - began
        self._count(sum(plan.window.rows for plan in planned), output.seconds, seconds)
        self._learn([plan.window for plan in planned], seconds, began)
        for plan, rows in zip(planned, output.outputs, strict=True):
            answer = plan.job.absorb(plan.window, rows, output.seconds)
            if answer is not None:
                self._scheduler.remove(plan.job.session)
                result = plan.job.result(answer)
                self._waits.add(result.queue_seconds)
                self._observer.answered(result.queue_seconds, result.pass_seconds if plan.job.cold else None)
                self._answer(plan.job, result)

    def _count(self, rows: int, pass_seconds: float, busy_seconds: float) -> None:
        counters = self._counters
        counters.passes += 1
        counters.rows += rows
        counters.pass_seconds += pass_seconds
        counters.busy_seconds += busy_seconds
        if self._scheduler.starved:
            counters.starved_seconds += busy_seconds
        self._observer.passed(rows, pass_seconds)

    def _learn(self, windows: list[Window], seconds: float, began: float) -> None:
        """Prefill is left out: its rows have no outputs, so they cost less."""
        self._controller.turned()
        if all(window.outputs == window.rows for window in windows):
            placeholders = sum(window.placeholders for window in windows)
            tokens = sum(window.rows for window in windows) - placeholders
            between = 0.0 if self._ended is None else began - self._ended
            self._controller.passed(tokens, placeholders, len(windows), seconds, between)
        self._ended = began + seconds

    def _answer(self, job: Job, result: CallResult | ProveError) -> None:
        """Whoever waits may be gone: then the session goes too."""
        if not self._tell(job.session, job.done, result):
            self._release(job.session)

    def _tell(self, session: str, done: Callable[[T], None], news: T) -> bool:
        """No callback ends the engine."""
        try:
            done(news)
        except Exception:
            logger.exception("nobody took an answer", extra={"session": session})
            return False
        return True

    def _enqueue(self, request: CallRequest, done: Done) -> None:
        """Apply the commit and queue the call, or answer why not."""
        session = request.commit.session
        sequence = self._scheduler.sessions.get(session)
        try:
            if sequence is None:
                sequence = self._open(request)
            sequence.apply(request.commit)
            self._admit(Job(session, sequence, request, done))
        except ProveError as error:
            self._tell(session, done, error)

    def _open(self, request: CallRequest) -> Sequence:
        sequence = Sequence(self._pool)
        if request.commit.keep == 0:
            self._scheduler.open(request.commit.session, sequence)
        return sequence

    def _admit(self, job: Job) -> None:
        if not job.sequence.tokens:
            raise RequestError("a session needs at least one token", "messages")
        if job.answer_rows > self._scheduler.widest:
            raise RequestError(f"a block of {job.answer_rows} rows; at most {self._scheduler.widest} fit into a pass")
        if self._pool.pages_for(job.length) > self._pool.pages:
            job.drop_extras()
        if self._pool.pages_for(job.length) > self._pool.pages:
            raise PoolExhausted(f"{job.length} positions needed, the KV pool holds {self.capacity} tokens")
        superseded = self._scheduler.remove(job.session)
        self._scheduler.add(job)
        if superseded is not None:
            self._tell(job.session, superseded.done, StaleCommit(f"session {job.session}: superseded by a later call"))

    def _call(self, request: CallRequest, done: Done) -> None:
        session = request.commit.session
        if session in self._completions:
            self._tell(session, done, RequestError(f"session {session} is in use by a completion"))
        else:
            self._enqueue(request, done)

    def _start_completion(self, request: GenerateRequest, emit: Emit) -> None:
        session = request.session
        refusal = self._refusal(request)
        if refusal is not None:
            self._tell(session, emit, refusal)
            return
        self._completions.add(session)
        planner = planner_for(self._controller, request.params, self._sharing)
        self._new[session] = LocalCompletion(request, planner, self._enqueue, self._release, emit)

    def _begin_completions(self) -> None:
        """All at once, since what they plan depends on how many they are."""
        new, self._new = self._new, {}
        for session, completion in new.items():
            if not self._tell(session, completion.resume, None):
                self._release(session)

    def _sharing(self) -> int:
        """Completions that share a pass, about: sessions between calls of another model's cycle count as well."""
        return max(len(self._completions), len(self._scheduler.sessions))

    def _refusal(self, request: GenerateRequest) -> RequestError | None:
        if request.params.mode in TWO_MODEL_MODES:
            return RequestError(f"mode {request.params.mode.value} needs two models: one engine cannot run it", "mode")
        if request.session in self._scheduler.sessions or request.session in self._completions:
            return RequestError(f"session {request.session} is in use")
        return None

    def _release(self, session: str) -> None:
        self._completions.discard(session)
        self._new.pop(session, None)
        self._scheduler.close(session)

    def _fail(self, jobs: list[Job], error: ProveError) -> None:
        """Answer `jobs` with `error`; their sessions' KV is in doubt, so it is dropped."""
        for job in jobs:
            self._scheduler.remove(job.session)
            job.sequence.release()
            self._answer(job, error)

    def _request_stop(self) -> None:
        self._stopping = True

    def _close(self) -> None:
        with self._inbox.lock:
            self._inbox.closed = True
        error = EngineStopped("the engine has stopped")
        while not self._inbox.queue.empty():
            self._inbox.queue.get()()
        self._begin_completions()
        self._fail(self._scheduler.jobs, error)
