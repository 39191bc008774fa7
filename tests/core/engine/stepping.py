"""An engine without its thread: a test decides when a pass runs, so that every race can be written down."""

from collections.abc import Sequence

from prove_core.config import EngineConfig
from prove_core.engine.engine import Engine
from prove_core.errors import ProveError
from prove_core.model.window import PassOutput, Runner, Window
from prove_core.types import CallRequest, CallResult, Commit, Finished, GenerateRequest, Propose, Step, TokenIds, Verify
from tests.core.engine.harness import Outcome


class SteppedEngine(Engine):
    """`step` takes in what was asked for and runs one pass; the pool's books are checked before and after."""

    def __init__(self, runner: Runner, config: EngineConfig) -> None:
        super().__init__(_NoEmptyWindows(runner), config)

    def step(self) -> bool:
        """Whether a pass ran."""
        self.take_in()
        planned = self._scheduler.pack()
        assert planned or not len(self._scheduler), "calls are waiting and none can run"
        if planned:
            self._run(planned)
        self._check()
        return bool(planned)

    def take_in(self) -> None:
        """Everything asked for so far, without a pass."""
        while not self._inbox.queue.empty():
            self._inbox.queue.get()()
        self._begin_completions()
        self._check()

    def run(self, passes: int = 10_000) -> None:
        """Passes until nothing waits."""
        for _ in range(passes):
            if not self.step():
                return
        raise AssertionError(f"not done after {passes} passes")

    def begin(
        self, session: str, prompt: TokenIds, call: Propose | Verify, cycle: int = 1
    ) -> list[CallResult | ProveError]:
        """Open a session with a call; its answer will be in the list."""
        answers: list[CallResult | ProveError] = []
        self.call(CallRequest(Commit(session, cycle, 0, prompt), call), answers.append)
        return answers

    def complete(self, request: GenerateRequest) -> Outcome:
        """Start a completion; its outcome fills in as passes run."""
        outcome = Outcome()

        def emit(event: Step | Finished | ProveError) -> None:
            if isinstance(event, Step):
                outcome.steps.append(event)
                outcome.tokens += event.tokens
            else:
                assert outcome.end is None, "two ends"
                outcome.end = event

        self.generate(request, emit)
        return outcome

    def _check(self) -> None:
        self._pool.check([sequence.pages for sequence in self._scheduler.sessions.values()])


class _NoEmptyWindows:
    """A window without rows is a call that makes no progress, and no backend has to cope with it."""

    def __init__(self, inner: Runner) -> None:
        self._inner = inner

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """As the inner runner."""
        assert all(window.rows for window in windows)
        return self._inner.run(windows)
