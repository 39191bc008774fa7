"""Starved pools, sessions used twice, failing passes, callers that are gone: pass by pass."""

import random
from collections.abc import Sequence

import pytest

from prove_core.errors import PassFailed, RequestError, SessionLost, StaleCommit
from prove_core.model.window import PassOutput, Window
from prove_core.types import (
    CallRequest,
    CallResult,
    Commit,
    DecodingParams,
    Draft,
    Drafted,
    Finished,
    GenerateRequest,
    Limits,
    Mode,
    Proposal,
    Propose,
    Verify,
)
from tests.core.engine.harness import engine_config
from tests.core.engine.stepping import SteppedEngine
from tests.core.toy import ToyRunner, continuation

AR = DecodingParams(Mode.AR)


def prompt_of(seed: int, length: int) -> tuple[int, ...]:
    return tuple((seed * 7 + index * 3) % 50 for index in range(length))


@pytest.mark.parametrize("chunk", [1, 2, 7, 256])
@pytest.mark.parametrize("seed", range(6))
def test_calls_of_every_kind_in_a_starved_pool_are_answered_right(chunk: int, seed: int) -> None:
    """Preempted drafts among them: what they had drafted is read again, chunk by chunk."""
    chance = random.Random(seed * 100 + chunk)
    engine = SteppedEngine(ToyRunner(4, 1.0, seed), engine_config(tokens=96, page_size=4, chunk=chunk))
    expected = {}
    answers: dict[str, list[object]] = {}
    for index in range(14):
        prompt = prompt_of(chance.randrange(50), chance.randint(1, 60))
        truth = tuple(continuation(prompt, 12))
        name = f"s{index}"
        call = chance.choice([Draft(10), Draft(3), Propose(1), Propose(8), Verify(truth[:6])])
        answers[name] = []
        engine.call(CallRequest(Commit(name, 1, 0, prompt), call), answers[name].append)
        expected[name] = {Draft: truth[: getattr(call, "length", 0)], Propose: truth[:1], Verify: truth[:7]}[type(call)]
        for _ in range(chance.randint(0, 3)):
            engine.step()
        if chance.random() < 0.2:
            engine.release(f"s{chance.randrange(index + 1)}")
    engine.run()
    assert engine.stats().preemptions > 0
    for name, received in answers.items():
        for result in received:
            assert isinstance(result, CallResult)
            answer = result.answer
            got = answer.tokens if isinstance(answer, Drafted | Proposal) else answer.argmax
            assert got[: len(expected[name])] == expected[name]
    assert sum(len(received) for received in answers.values()) >= 8


def test_a_long_prompt_is_not_starved_by_short_ones() -> None:
    engine = SteppedEngine(ToyRunner(4), engine_config(tokens=256))
    served = 0
    live: list[tuple[int, object]] = []

    def keep_eight() -> None:
        nonlocal served, live
        ended = [number for number, outcome in live if outcome.end is not None]  # type: ignore[attr-defined]
        live = [(number, outcome) for number, outcome in live if number not in ended]
        while len(live) < 8:
            served += 1
            request = GenerateRequest(f"short{served}", prompt_of(served, 9), AR, Limits(20))
            live.append((served, engine.complete(request)))

    for _ in range(40):
        keep_eight()
        engine.step()
    long = engine.complete(GenerateRequest("long", prompt_of(1, 160), AR, Limits(1)))
    for _ in range(200):
        keep_eight()
        engine.step()
        if long.end is not None:
            break
    assert isinstance(long.end, Finished)


def test_prompts_get_their_share_of_a_saturated_pass() -> None:
    runner = ToyRunner(4)
    engine = SteppedEngine(runner, engine_config(tokens=16384))
    for index in range(40):  # each wants 8 rows: more than a pass has
        params = DecodingParams(Mode.LOSSLESS, block_size=8)
        engine.complete(GenerateRequest(f"s{index}", (index, 1), params, Limits(400)))
    for _ in range(5):
        engine.step()
    long = engine.complete(GenerateRequest("long", prompt_of(3, 600), AR, Limits(1)))
    for _ in range(600 // 64 + 3):
        engine.step()
    assert isinstance(long.end, Finished)


@pytest.mark.parametrize("prompts", [1, 3])
def test_every_stream_commits_in_every_pass_while_long_prompts_are_read(prompts: int) -> None:
    engine = SteppedEngine(ToyRunner(4), engine_config(tokens=16384))
    streams = [engine.complete(GenerateRequest(f"s{index}", (index, 1), AR, Limits(500))) for index in range(4)]
    engine.step()
    long = [
        engine.complete(GenerateRequest(f"long{index}", prompt_of(index, 2000), AR, Limits(1)))
        for index in range(prompts)
    ]
    passes = 0
    while any(outcome.end is None for outcome in long):
        before = [len(stream.tokens) for stream in streams]
        engine.step()
        passes += 1
        assert [len(stream.tokens) for stream in streams] == [count + 1 for count in before]
    assert 2000 * prompts / 256 <= passes <= 2000 * prompts / 256 * 1.1 + 1, "and prompts get the rest of each pass"


def test_a_younger_session_does_not_push_out_an_older_idle_one_while_others_can_run() -> None:
    engine = SteppedEngine(ToyRunner(4), engine_config(tokens=64))
    idle = engine.begin("idle", prompt_of(1, 24), Propose(1))
    engine.run()
    assert isinstance(idle[0], CallResult)
    engine.begin("new", prompt_of(2, 60), Propose(1))
    runs = engine.complete(GenerateRequest("runs", prompt_of(3, 4), AR, Limits(10)))
    for _ in range(5):
        engine.step()
        assert engine._scheduler.sessions["idle"].pages
    assert len(runs.tokens) == 5


def test_a_superseded_call_is_answered_and_the_later_one_runs() -> None:
    engine = SteppedEngine(ToyRunner(4), engine_config())
    first = engine.begin("a", (1, 2, 3), Propose(1), cycle=1)
    engine.take_in()
    second = engine.begin("a", (4, 5, 6), Propose(1), cycle=2)
    engine.run()
    assert isinstance(first[0], StaleCommit)
    assert isinstance(second[0], CallResult)
    assert second[0].answer.tokens == tuple(continuation((4, 5, 6), 1))  # type: ignore[union-attr]
    engine.release("a")
    engine.take_in()


def test_a_session_serves_one_master() -> None:
    engine = SteppedEngine(ToyRunner(4), engine_config())
    request = GenerateRequest("a", (1, 2, 3), AR, Limits(20))
    first, again = engine.complete(request), engine.complete(request)
    engine.step()
    meddler = engine.begin("a", (9, 9), Propose(1))
    engine.run()
    assert first.tokens == continuation((1, 2, 3), 20)
    assert isinstance(again.end, RequestError)
    assert isinstance(meddler[0], RequestError)
    assert engine.stats().free_pages == engine.stats().total_pages


def test_callbacks_that_raise_end_no_engine() -> None:
    def gone(event: object) -> None:
        raise RuntimeError("the event loop is closed")

    engine = SteppedEngine(ToyRunner(4), engine_config(tokens=64))
    engine.call(CallRequest(Commit("lost", 1, 7, (1,)), Propose(1)), gone)
    engine.generate(GenerateRequest("a", (1, 2), AR, Limits(9)), gone)
    engine.generate(GenerateRequest("huge", (1,) * 100, AR, Limits(9)), gone)
    engine.call(CallRequest(Commit("b", 1, 0, (1, 2)), Propose(1)), gone)
    engine.run()
    assert engine.stats().sessions == 0 or engine.stats().free_pages == engine.stats().total_pages
    fine = engine.complete(GenerateRequest("c", (1, 2), AR, Limits(3)))
    engine.run()
    assert fine.tokens == continuation((1, 2), 3)


@pytest.mark.parametrize("call", [Propose(300), Verify((1,) * 256)])
def test_a_block_wider_than_a_pass_is_refused(call: Propose | Verify) -> None:
    engine = SteppedEngine(ToyRunner(4), engine_config())
    answer = engine.begin("a", (1, 2), call)
    engine.run()
    assert isinstance(answer[0], RequestError)


def test_one_engine_refuses_modes_of_two_models() -> None:
    engine = SteppedEngine(ToyRunner(4), engine_config())
    outcome = engine.complete(GenerateRequest("a", (1, 2), DecodingParams(Mode.PROVE), Limits(9)))
    engine.run()
    assert isinstance(outcome.end, RequestError)


class Poisoned(ToyRunner):
    """Leaves garbage behind, then fails, whenever token 13 is fed at the start of a prompt."""

    def __init__(self, page_size: int, times: int) -> None:
        super().__init__(page_size)
        self.times = times

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """As the toy, unless poisoned."""
        if self.times and any(window.start == 0 and window.tokens[0] == 13 for window in windows):
            self.times -= 1
            for window in windows:
                self.slots.update({(page, offset): 0 for page in window.pages for offset in range(self.page_size)})
            raise RuntimeError("out of memory")
        return super().run(windows)


def test_a_failing_pass_fails_its_own_calls_only() -> None:
    engine = SteppedEngine(Poisoned(4, times=99), engine_config(prefix_cache=False))
    good = [engine.complete(GenerateRequest(f"g{i}", (i, 2, 3), AR, Limits(20))) for i in range(5)]
    bad = engine.complete(GenerateRequest("bad", (13, 2, 3), AR, Limits(20)))
    engine.run()
    assert isinstance(bad.end, PassFailed)
    assert [outcome.tokens for outcome in good] == [continuation((i, 2, 3), 20) for i in range(5)]


def test_a_session_whose_pass_failed_is_read_again_from_its_tokens() -> None:
    engine = SteppedEngine(Poisoned(4, times=1), engine_config(prefix_cache=False))
    first = engine.begin("a", (13, 2, 3, 4, 5), Propose(1))
    engine.run()
    assert isinstance(first[0], PassFailed)
    answers: list[object] = []
    engine.call(CallRequest(Commit("a", 2, 5, (6,)), Propose(1)), answers.append)
    engine.run()
    assert isinstance(answers[0], CallResult)
    assert answers[0].answer.tokens == tuple(continuation((13, 2, 3, 4, 5, 6), 1))  # type: ignore[union-attr]


def test_a_released_session_is_lost_to_later_calls() -> None:
    engine = SteppedEngine(ToyRunner(4), engine_config())
    first = engine.begin("a", (1, 2), Propose(1))
    engine.release("a")
    engine.run()
    assert first == []
    answers: list[object] = []
    engine.call(CallRequest(Commit("a", 2, 2, (3,)), Propose(1)), answers.append)
    engine.run()
    assert isinstance(answers[0], SessionLost)


def test_completions_that_come_together_begin_together() -> None:
    engine = SteppedEngine(ToyRunner(4), engine_config())
    first = engine.complete(GenerateRequest("a", prompt_of(1, 9), AR, Limits(3)))
    again = engine.complete(GenerateRequest("a", prompt_of(1, 9), AR, Limits(3)))
    gone = engine.complete(GenerateRequest("b", prompt_of(2, 9), AR, Limits(3)))
    engine.release("b")
    after = engine.complete(GenerateRequest("b", prompt_of(3, 9), AR, Limits(2)))
    engine.step()
    assert engine.stats().sessions == 2
    engine.run()
    assert isinstance(again.end, RequestError), "its session is in use, though it has not begun"
    assert gone.end is None, "released before it began"
    assert gone.tokens == []
    assert isinstance(first.end, Finished)
    assert isinstance(after.end, Finished)
    assert (len(first.tokens), len(after.tokens)) == (3, 2)
