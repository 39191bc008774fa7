"""A whole completion by one model, decoded on the engine thread: no call leaves the replica per cycle."""

from collections.abc import Callable

from prove_core.decoding.cycle import Planner
from prove_core.decoding.driver import CompletionDriver, Pending
from prove_core.errors import ProveError
from prove_core.types import CallRequest, CallResult, Finished, GenerateRequest, Step

Emit = Callable[[Step | Finished | ProveError], None]
Enqueue = Callable[[CallRequest, Callable[[CallResult | ProveError], None]], None]


class LocalCompletion:
    """Feeds a `CompletionDriver` from the engine it runs in. `emit` gets steps, then `Finished` or an error."""

    def __init__(
        self,
        request: GenerateRequest,
        planner: Planner,
        enqueue: Enqueue,
        finish: Callable[[str], None],
        emit: Emit,
    ) -> None:
        self._session = request.session
        self._driver = CompletionDriver(
            request.session, request.prompt, request.params, request.limits, request.sampling, planner
        )
        self._enqueue = enqueue
        self._finish = finish
        self._emit = emit

    def resume(self, result: CallResult | ProveError | None = None) -> None:
        """Go on with the answer of the last call; enqueues the next one or ends the completion.

        A fault of ours ends it too, and is raised: whoever reads must not wait for ever.
        """
        try:
            self._go_on(result)
        except Exception:
            self._finish(self._session)
            self._emit(ProveError("decoding failed on the replica"))
            raise

    def _go_on(self, result: CallResult | ProveError | None) -> None:
        if isinstance(result, ProveError):
            self._finish(self._session)
            self._emit(result)
            return
        turn = self._driver.advance(result)
        for step in turn.steps:
            self._emit(step)
        if isinstance(turn.following, Finished):
            self._finish(self._session)
            self._emit(turn.following)
        elif isinstance(turn.following, Pending):  # cycles of one model begin nothing ahead
            self._enqueue(turn.following.request, self.resume)
