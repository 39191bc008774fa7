"""Completions over engines of this process: the same cycles as in the services, without a network."""

import queue
from collections.abc import Iterator, Mapping

from prove_core.decoding.cycle import TWO_MODEL_MODES
from prove_core.decoding.driver import CompletionDriver, Pending
from prove_core.engine.engine import Engine
from prove_core.errors import ProveError
from prove_core.types import CallRequest, CallResult, Finished, GenerateRequest, Role, Step


def complete(engines: Mapping[Role, Engine], request: GenerateRequest) -> Iterator[Step | Finished]:
    """Steps as they are committed, then `Finished`. Raises what the engines answer; frees the session at the end."""
    try:
        if request.params.mode in TWO_MODEL_MODES:
            yield from _cycle(engines, request)
        else:
            yield from _inside(engines[Role.PROPOSER], request)
    finally:
        for engine in engines.values():
            engine.release(request.session)


def _inside(engine: Engine, request: GenerateRequest) -> Iterator[Step | Finished]:
    events: queue.SimpleQueue[Step | Finished | ProveError] = queue.SimpleQueue()
    engine.generate(request, events.put)
    while True:
        event = events.get()
        if isinstance(event, ProveError):
            raise event
        yield event
        if isinstance(event, Finished):
            return


def _cycle(engines: Mapping[Role, Engine], request: GenerateRequest) -> Iterator[Step | Finished]:
    driver = CompletionDriver(request.session, request.prompt, request.params, request.limits, request.sampling)
    turn = driver.advance()
    ahead = Answers()
    while True:
        if turn.ahead is not None:
            ahead = begin(engines[turn.ahead.role], turn.ahead.request)
        yield from turn.steps
        if isinstance(turn.following, Finished):
            yield turn.following
            return
        if isinstance(turn.following, Pending):
            result: CallResult | None = call(engines[turn.following.role], turn.following.request)
            if turn.following.role is Role.PROPOSER and not ahead.empty():  # begun for a stop that did not come true
                late = _result_if_any(ahead)
                if late is not None:
                    driver.spent(Role.PROPOSER, late)
        else:
            result = _result_if_any(ahead)
        turn = driver.advance(result)


Answers = queue.SimpleQueue[CallResult | ProveError]


def begin(engine: Engine, request: CallRequest) -> Answers:
    """Start one call; its answer comes to the queue."""
    answers = Answers()
    engine.call(request, answers.put)
    return answers


def call(engine: Engine, request: CallRequest) -> CallResult:
    """One call, to its answer. Raises what the engine answers."""
    return _result(begin(engine, request))


def _result_if_any(answers: Answers) -> CallResult | None:
    """None for a call that failed, or whose place a later one took: the cycle then proposes afresh."""
    answer = answers.get()
    return None if isinstance(answer, ProveError) else answer


def _result(answers: Answers) -> CallResult:
    answer = answers.get()
    if isinstance(answer, ProveError):
        raise answer
    return answer
