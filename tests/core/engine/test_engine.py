"""The engine's promises, on a model whose every KV read is checked."""

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prove_core.engine.engine import Engine
from prove_core.engine.job import Done
from prove_core.engine.local import complete
from prove_core.errors import EngineStopped, PassFailed, PoolExhausted, ProveError, SessionLost, StaleCommit
from prove_core.model.window import PassOutput, Window
from prove_core.types import (
    CallRequest,
    CallResult,
    Commit,
    Continue,
    DecodingParams,
    Draft,
    Drafted,
    Finished,
    FinishReason,
    GenerateRequest,
    Limits,
    Mode,
    Propose,
    Reading,
    Role,
    Step,
    Verify,
)
from tests.core.engine.harness import Outcome, Stream, call, cycle, engine_config, generate, running, settled
from tests.core.toy import ToyRunner, continuation

PROMPT = [1, 2, 3, 4, 5, 6, 7]
AR = DecodingParams(Mode.AR)
LOCAL = (Mode.AR, Mode.LOSSLESS, Mode.FUSED)


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from([Mode.AR, Mode.LOSSLESS, Mode.FUSED]),
    block=st.sampled_from([1, 2, 4, 8, 16]),
    luck=st.floats(0, 1),
    prompt=st.lists(st.integers(0, 49), min_size=1, max_size=70),
    cap=st.integers(1, 60),
    chunk=st.sampled_from([1, 7, 64, 256]),
    page=st.sampled_from([1, 4, 16]),
)
def test_exact_modes_equal_the_greedy_continuation(
    mode: Mode, block: int, luck: float, prompt: list[int], cap: int, chunk: int, page: int
) -> None:
    with running(ToyRunner(page, luck), engine_config(page_size=page, chunk=chunk)) as engine:
        outcome = generate(engine, prompt, DecodingParams(mode, block_size=block), Limits(cap))
        assert outcome.tokens == continuation(prompt, cap)
        assert isinstance(outcome.end, Finished)


def test_every_acceptance_length_occurs_and_caches_agree_with_the_commit() -> None:
    seen: set[int] = set()
    with running(ToyRunner(4, 0.75)) as engine:
        for index in range(12):
            outcome = generate(engine, [index, 1, 2], DecodingParams(Mode.LOSSLESS, block_size=8), Limits(120))
            assert outcome.tokens == continuation([index, 1, 2], 120)
            seen |= {step.accepted for step in outcome.steps if step.drafted == 7}
    assert seen == set(range(8))


@pytest.mark.parametrize("mode", [Mode.LOSSLESS, Mode.FUSED, Mode.AUTO])
def test_alternatives_come_true_and_change_no_token(mode: Mode) -> None:
    runner = ToyRunner(4, 0.6)
    params = DecodingParams(mode, block_size=8)
    with running(runner, engine_config()) as engine:
        for index in range(8):
            outcome = generate(engine, [index, 1, 2], params, Limits(120))
            assert outcome.tokens == continuation([index, 1, 2], 120)
    windows = [window for windows in runner.passes for window in windows]
    read_again = [window for window in windows if window.start > 3 and window.rows > window.outputs]
    assert any(window.sides for window in windows)
    assert read_again, "no token of an alternative was committed"


@pytest.mark.parametrize("tokens", [64, 68, 72])
def test_a_pool_too_small_for_alternatives_verifies_the_block(tokens: int) -> None:
    with running(ToyRunner(4, 0.5), engine_config(tokens=tokens)) as engine:
        outcome = generate(engine, PROMPT, DecodingParams(Mode.LOSSLESS, block_size=8), Limits(56 - len(PROMPT)))
    assert outcome.tokens == continuation(PROMPT, 56 - len(PROMPT))


@pytest.mark.parametrize("mode", [Mode.PROVE, Mode.SPECULATIVE, Mode.LOSSLESS, Mode.FUSED])
def test_acceptance_does_not_decay(mode: Mode) -> None:
    """Trap 28: a KV that drifts out of step shows as acceptance that falls along a long completion."""
    params = DecodingParams(mode, theta=0.0005, block_size=8, draft_length=7)
    engines = {}
    with running(ToyRunner(4, 1.0)) as engines[Role.PROPOSER], running(ToyRunner(4, 1.0)) as engines[Role.VERIFIER]:
        outcome = cycle(engines, PROMPT, params, Limits(400), "s")
    accepted = [step.accepted / step.drafted for step in outcome.steps if step.drafted]
    late = accepted[len(accepted) // 2 :]
    assert outcome.tokens == continuation(PROMPT, 400)
    assert sum(late) / len(late) > 0.5 * sum(accepted) / len(accepted) > 0.1


def test_speculative_is_exact_with_a_drafter_that_differs() -> None:
    class Contrary(ToyRunner):
        """Drafts a wrong token every third position."""

        def run(self, windows: list[Window]) -> PassOutput:  # type: ignore[override]
            output = super().run(windows)
            for window, rows in zip(windows, output.outputs, strict=True):
                if window.length % 3 == 0 and window.logits:
                    object.__setattr__(rows, "argmax", (*rows.argmax[:-1], (rows.argmax[-1] + 1) % 50))
            return output

    engines = {}
    with running(ToyRunner(4)) as engines[Role.PROPOSER], running(Contrary(4)) as engines[Role.VERIFIER]:
        params = DecodingParams(Mode.SPECULATIVE, draft_length=5)
        outcome = cycle(engines, PROMPT, params, Limits(90), "s")
    assert outcome.tokens == continuation(PROMPT, 90)


def test_min_tokens_counts_tokens_and_bans_stop_ids_inside_blocks() -> None:
    limits = Limits(60, frozenset(range(0, 40)), min_tokens=17)
    outcomes = []
    for mode in (Mode.AR, Mode.LOSSLESS, Mode.FUSED):
        with running(ToyRunner(4, 0.8)) as engine:
            outcomes.append(generate(engine, PROMPT, DecodingParams(mode, block_size=8), limits).tokens)
    assert outcomes[0] == outcomes[1]
    assert 17 <= len(outcomes[0]) < 60
    assert all(token >= 40 for token in outcomes[0])


def test_concurrent_sessions_equal_solo_and_share_passes() -> None:
    prompts = [[i, i + 1, 2] * (1 + i % 5) for i in range(24)]
    modes = [DecodingParams(LOCAL[i % 3], block_size=1 + i % 9) for i in range(24)]
    runner = ToyRunner(4, 0.6)
    with running(runner) as engine:
        streams = [
            Stream(engine, GenerateRequest(f"s{i}", tuple(p), m, Limits(40)))
            for i, (p, m) in enumerate(zip(prompts, modes, strict=True))
        ]
        results = [stream.result() for stream in streams]
    for prompt, result in zip(prompts, results, strict=True):
        assert result.tokens == continuation(prompt, 40)
    assert max(len(windows) for windows in runner.passes) > 12


def test_a_long_prompt_does_not_stop_the_others() -> None:
    runner = ToyRunner(4)
    with running(runner, engine_config(tokens=8192, chunk=64)) as engine:
        short = Stream(engine, GenerateRequest("a", (1, 2), AR, Limits(60)))
        long = Stream(engine, GenerateRequest("b", tuple(i % 50 for i in range(2000)), AR, Limits(1)))
        assert short.result().tokens == continuation([1, 2], 60)
        assert isinstance(long.result().end, Finished)
    mixed = [windows for windows in runner.passes if len(windows) > 1]
    assert len(mixed) > 20


def test_a_pool_for_two_and_a_half_serves_six_at_once() -> None:
    """Trap 29, with traps 27 and 30: whoever gives way is prefilled again and ends with the same ids."""
    need = len(PROMPT) + 60 + 8
    runner = ToyRunner(4, 0.7)
    with running(runner, engine_config(tokens=int(2.5 * need))) as engine:
        streams = [
            Stream(
                engine, GenerateRequest(f"s{i}", (i, *PROMPT), DecodingParams(Mode.LOSSLESS, block_size=8), Limits(60))
            )
            for i in range(6)
        ]
        results = [stream.result() for stream in streams]
        assert engine.stats().preemptions > 0
    assert [r.tokens for r in results] == [continuation([i, *PROMPT], 60) for i in range(6)]


def test_two_starved_pools_do_not_deadlock() -> None:
    """Sessions that are older on one role and younger on the other wait for each other's pages."""
    engines = {}
    results: dict[int, Outcome] = {}
    params = DecodingParams(Mode.PROVE, theta=0.0005, block_size=8)

    def worker(index: int) -> None:
        time.sleep(random.Random(index).random() * 0.01)
        results[index] = cycle(engines, [index, *PROMPT], params, Limits(50), f"s{index}")

    with (
        running(ToyRunner(4, 1.0), engine_config(tokens=160)) as engines[Role.PROPOSER],
        running(ToyRunner(4, 1.0), engine_config(tokens=160)) as engines[Role.VERIFIER],
    ):
        threads = [threading.Thread(target=worker, args=(i,), daemon=True) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
        assert len(results) == 8
    assert all(results[i].tokens == continuation([i, *PROMPT], 50) for i in range(8))


def test_preemption_between_propose_verify_and_commit() -> None:
    with running(ToyRunner(4, 1.0), engine_config(tokens=64)) as engine:
        prompt = tuple(PROMPT)
        truth = continuation(PROMPT, 30)
        first = call(engine, CallRequest(Commit("a", 1, 0, prompt), Propose(8)))
        assert isinstance(first, CallResult)
        _steal(engine)
        read = call(engine, CallRequest(Commit("a", 2, 7, (truth[0],)), Verify(tuple(truth[1:8]))))
        assert isinstance(read, CallResult)
        assert read.answer == Reading(tuple(truth[1:9]), (0.9,) * 7)
        _steal(engine)
        again = call(engine, CallRequest(Commit("a", 3, 8, tuple(truth[1:9])), Draft(5)))
        assert isinstance(again, CallResult)
        assert again.answer == Drafted(tuple(truth[9:14]))
        engine.release("a")


def _steal(engine: Engine) -> None:
    """Take every page that session `a` holds, by a request that needs the whole pool."""
    before = engine.stats().preemptions
    outcome = generate(engine, [9] * 40, AR, Limits(20), "thief")
    assert outcome.tokens == continuation([9] * 40, 20)
    assert engine.stats().preemptions > before


def test_a_request_larger_than_the_pool_is_refused_at_once() -> None:
    with running(ToyRunner(4), engine_config(tokens=64)) as engine:
        outcome = generate(engine, [1] * 65, AR, Limits(10))
        assert isinstance(outcome.end, PoolExhausted)
        assert engine.stats().passes == 0
        grows = generate(engine, [1] * 60, AR, Limits(10), "t")
        assert isinstance(grows.end, PoolExhausted)
        assert grows.tokens == continuation([1] * 60, len(grows.tokens))


@pytest.mark.parametrize("prefix_cache", [True, False])
def test_rejected_tokens_never_enter_the_prefix_cache(prefix_cache: bool) -> None:
    """Trap 31: P, then P + half its answer, then P again."""
    runner = ToyRunner(4, 0.5)
    with running(runner, engine_config(prefix_cache=prefix_cache)) as engine:
        params = DecodingParams(Mode.LOSSLESS, block_size=8)
        prompt = [i % 50 for i in range(37)]
        answer = generate(engine, prompt, params, Limits(40), "a").tokens
        half = [*prompt, *answer[:20]]
        assert generate(engine, half, params, Limits(20), "b").tokens == answer[20:] == continuation(half, 20)
        runner.passes.clear()
        assert generate(engine, prompt, params, Limits(40), "c").tokens == answer
        prefilled = len(runner.passes[0][0].tokens)
        assert prefilled == (1 if prefix_cache else 37)


def test_release_stops_a_completion_and_frees_its_pages() -> None:
    with running(ToyRunner(4)) as engine:
        for index in range(40):
            engine.generate(GenerateRequest(f"s{index}", tuple(PROMPT), AR, Limits(4000)), lambda event: None)
        time.sleep(0.05)
        for index in range(40):
            engine.release(f"s{index}")
        engine.release("unknown")
        settled(engine)


def test_unknown_sessions_replays_and_stale_commits() -> None:
    with running(ToyRunner(4)) as engine:
        assert isinstance(call(engine, CallRequest(Commit("a", 1, 7, (1,)), Propose(1))), SessionLost)
        opened = CallRequest(Commit("a", 2, 0, tuple(PROMPT)), Propose(1))
        first = call(engine, opened)
        assert isinstance(first, CallResult)
        replay = call(engine, opened)
        assert isinstance(replay, CallResult)
        assert replay.answer.tokens == first.answer.tokens  # type: ignore[union-attr]
        assert isinstance(call(engine, CallRequest(Commit("a", 1, 0, (1,)), Propose(1))), StaleCommit)
        engine.release("a")


def test_a_failing_pass_fails_its_calls_and_nothing_else() -> None:
    class Fragile(ToyRunner):
        def run(self, windows: list[Window]) -> PassOutput:  # type: ignore[override]
            if any(13 in window.tokens for window in windows):
                raise RuntimeError("out of memory")
            return super().run(windows)

    with running(Fragile(4)) as engine:
        assert isinstance(generate(engine, [13], AR, Limits(5)).end, PassFailed)
        assert isinstance(generate(engine, PROMPT, AR, Limits(1), "t").end, Finished)


def test_an_answer_nobody_takes_does_not_end_the_engine() -> None:
    def gone(event: object) -> None:
        raise RuntimeError("the event loop is closed")

    with running(ToyRunner(4)) as engine:
        engine.generate(GenerateRequest("a", tuple(PROMPT), AR, Limits(50)), gone)
        assert generate(engine, PROMPT, AR, Limits(3), "b").end is not None


def test_a_fault_in_decoding_is_told_to_whoever_waits_for_the_completion() -> None:
    class Short(ToyRunner):
        def run(self, windows: Sequence[Window]) -> PassOutput:
            output = super().run(windows)
            return replace(output, outputs=[replace(one, argmax=one.argmax[:1]) for one in output.outputs])

    with running(Short(4)) as engine:
        outcome = generate(engine, PROMPT, DecodingParams(Mode.LOSSLESS, block_size=6), Limits(20))
        assert isinstance(outcome.end, ProveError)
        settled(engine)
        assert engine.stats().sessions == 0


def test_a_call_ahead_whose_place_another_took_costs_time_alone() -> None:
    """A proposer that is busy with others has not begun it when the verifier is done."""

    class Busy(Engine):
        def call(self, request: CallRequest, done: Done) -> None:
            ahead = isinstance(request.call, Continue)
            super().call(request, (lambda _: done(StaleCommit("superseded"))) if ahead else done)

    params = DecodingParams(Mode.PROVE, theta=0.1, block_size=6, overlap_rows=64)
    proposer, verifier = Busy(ToyRunner(4), engine_config()), Engine(ToyRunner(4), engine_config())
    for engine in (proposer, verifier):
        engine.start()
    request = GenerateRequest("s", tuple(PROMPT), params, Limits(60))
    steps = [*complete({Role.PROPOSER: proposer, Role.VERIFIER: verifier}, request)]
    assert [token for step in steps if isinstance(step, Step) for token in step.tokens] == continuation(PROMPT, 60)
    for engine in (proposer, verifier):
        settled(engine)
        engine.stop()


def test_a_stopped_engine_refuses_work() -> None:
    engine = Engine(ToyRunner(4), engine_config())
    engine.start()
    engine.stop()
    with pytest.raises(EngineStopped):
        call(engine, CallRequest(Commit("a", 1, 0, (1,)), Propose(1)))
    engine.release("a")


def test_stopping_fails_what_is_unanswered() -> None:
    engine = Engine(ToyRunner(4), engine_config())
    engine.start()
    stream = Stream(engine, GenerateRequest("a", tuple(PROMPT), AR, Limits(3000)))
    engine.stop()
    end = stream.result().end
    assert isinstance(end, EngineStopped) or (isinstance(end, Finished) and end.reason is FinishReason.LENGTH)
    engine.stop()


def test_two_hundred_random_requests_leave_no_page_behind() -> None:
    """Trap 27: page 16, B 16, random prompts, modes, lengths, and some callers that leave."""
    chance = random.Random(11)
    with running(ToyRunner(16, 0.8), engine_config(tokens=2048, page_size=16)) as engine:
        streams = {}
        for index in range(200):
            prompt = tuple(chance.randrange(50) for _ in range(chance.randint(1, 90)))
            params = DecodingParams(
                chance.choice([Mode.AR, Mode.LOSSLESS, Mode.FUSED, Mode.MARS]), tau=0.5, block_size=16
            )
            request = GenerateRequest(f"s{index}", prompt, params, Limits(chance.randint(1, 60)))
            if chance.random() < 0.2:
                engine.generate(request, lambda event: None)
                engine.release(request.session)
            else:
                streams[index] = (request, Stream(engine, request))
        for request, stream in streams.values():
            outcome = stream.result()
            assert isinstance(outcome.end, Finished)
            if request.params.mode is not Mode.MARS:
                assert outcome.tokens == continuation(request.prompt, request.limits.max_tokens)
