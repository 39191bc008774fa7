"""Driving an engine from a test: blocking calls and completions, and the two-model cycle without a network."""

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from prove_core.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from prove_core.decoding.controller import Controller
from prove_core.engine.engine import Engine
from prove_core.engine.local import complete
from prove_core.errors import ProveError
from prove_core.model.window import Runner
from prove_core.types import (
    CallRequest,
    CallResult,
    DecodingParams,
    Finished,
    GenerateRequest,
    Limits,
    Role,
    SamplingParams,
    Step,
)

WAIT = 60.0


def engine_config(tokens: int = 4096, page_size: int = 4, chunk: int = 256, prefix_cache: bool = True) -> EngineConfig:
    """A small engine's configuration."""
    return EngineConfig(
        model=ModelConfig(checkpoint="toy"),
        cache=CacheConfig(tokens=tokens, page_size=page_size, prefix_cache=prefix_cache),
        scheduler=SchedulerConfig(prefill_chunk=chunk),
    )


@contextmanager
def running(
    runner: Runner, config: EngineConfig | None = None, controller: Controller | None = None
) -> Iterator[Engine]:
    """A started engine; at the end every page must be free again."""
    engine = Engine(runner, config or engine_config(), controller=controller)
    engine.start()
    try:
        yield engine
        settled(engine)
    finally:
        engine.stop()


def settled(engine: Engine) -> None:
    """All earlier work is done, and no page is held."""
    fence: queue.SimpleQueue[None] = queue.SimpleQueue()
    engine._inbox.put(lambda: fence.put(None))
    fence.get(timeout=WAIT)
    assert engine.alive
    stats = engine.stats()
    assert stats.free_pages == stats.total_pages, stats


@dataclass
class Outcome:
    """What a completion came to."""

    tokens: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    end: Finished | ProveError | None = None


class Stream:
    """The events of one completion, collected from the engine thread."""

    def __init__(self, engine: Engine, request: GenerateRequest) -> None:
        self._events: queue.SimpleQueue[Step | Finished | ProveError] = queue.SimpleQueue()
        engine.generate(request, self._events.put)

    def result(self) -> Outcome:
        """Wait for the end."""
        outcome = Outcome()
        while True:
            event = self._events.get(timeout=WAIT)
            if not isinstance(event, Step):
                outcome.end = event
                return outcome
            outcome.steps.append(event)
            outcome.tokens += event.tokens


def generate(
    engine: Engine,
    prompt: list[int],
    params: DecodingParams,
    limits: Limits,
    session: str = "s",
    sampling: SamplingParams | None = None,
) -> Outcome:
    """One completion, to its end."""
    return Stream(engine, GenerateRequest(session, tuple(prompt), params, limits, sampling)).result()


def call(engine: Engine, request: CallRequest) -> CallResult | ProveError:
    """One call, to its answer."""
    answers: queue.SimpleQueue[CallResult | ProveError] = queue.SimpleQueue()
    engine.call(request, answers.put)
    return answers.get(timeout=WAIT)


def cycle(
    engines: dict[Role, Engine],
    prompt: list[int],
    params: DecodingParams,
    limits: Limits,
    name: str,
    sampling: SamplingParams | None = None,
) -> Outcome:
    """The two-model cycle, each role in its own engine; a mode of one model inside the proposer's."""
    outcome = Outcome()
    for event in complete(engines, GenerateRequest(name, tuple(prompt), params, limits, sampling)):
        if not isinstance(event, Step):
            outcome.end = event
            break
        outcome.steps.append(event)
        outcome.tokens += event.tokens
    return outcome
