"""Many completions at once: bounded, complete, and gone when the caller stops."""

import pytest

from prove_core.engine.many import complete_many
from prove_core.errors import PoolExhausted
from prove_core.types import DecodingParams, GenerateRequest, Limits, Mode, Step
from tests.core.engine.harness import engine_config, running
from tests.core.toy import ToyRunner, continuation

REQUESTS = [GenerateRequest(f"r{i}", (i, 1), DecodingParams(Mode.AR), Limits(12)) for i in range(9)]


def test_every_request_ends_and_no_more_run_than_asked_for() -> None:
    tokens: list[list[int]] = [[] for _ in REQUESTS]
    ended: list[int] = []
    runner = ToyRunner(4)
    with running(runner) as engine:
        for index, event in complete_many(engine, REQUESTS, 3):
            if isinstance(event, Step):
                tokens[index] += event.tokens
            else:
                ended.append(index)
    assert sorted(ended) == list(range(9))
    assert tokens == [continuation((i, 1), 12) for i in range(9)]
    assert max(len(windows) for windows in runner.passes) <= 3


def test_a_caller_who_stops_or_an_error_leaves_no_session() -> None:
    with running(ToyRunner(4), engine_config(tokens=64)) as engine:
        next(complete_many(engine, REQUESTS, 3))
        huge = GenerateRequest("huge", (1,) * 100, DecodingParams(Mode.AR), Limits(5))
        with pytest.raises(PoolExhausted):
            list(complete_many(engine, [*REQUESTS[:2], huge], 3))
