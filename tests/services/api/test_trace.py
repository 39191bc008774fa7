"""What `decoding.trace` adds to a stream: every commit, and nothing to the text."""

from typing import Any

import pytest

from prove_core.text.completion import TextStep
from prove_core.types import Cost, Step
from services.api.trace import CommitTrace, TokenKind
from tests.services.api.streams import joined, payloads
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import toy_server

MODES = ["ar", "mars", "prove", "lossless", "fused", "auto", "speculative"]


def kinds(step: Step) -> list[tuple[int, str]]:
    trace = CommitTrace.of(TextStep(("x",) * len(step.tokens), step, stopped=False), 1)
    return [(token.position, token.kind.value) for token in trace.tokens]


def test_positions_and_kinds() -> None:
    assert kinds(Step((1,))) == [(0, "ar")]
    assert kinds(Step((1, 2, 3), 5, 2)) == [(1, "accepted"), (2, "accepted"), (3, "corrected")]
    assert kinds(Step((1, 2, 3), 2, 2)) == [(1, "accepted"), (2, "accepted"), (3, "bonus")]
    assert kinds(Step((1, 2), 5, 2)) == [(1, "accepted"), (2, "accepted")]
    assert kinds(Step((), 5, 0)) == []


def test_times_are_milliseconds() -> None:
    step = Step((1,), cost=Cost(1, 1, 0, 0.25))
    assert CommitTrace.of(TextStep(("a",), step, stopped=False), 3).pass_ms == 250


@pytest.mark.parametrize("stop", [[], ["a"], ["!!", "zz"]])
def test_the_pieces_of_every_commit_are_its_content_and_the_counts_those_of_the_reply(stop: list[str]) -> None:
    async def run() -> None:
        async with toy_server() as server:
            for mode in MODES:
                decoding = {"mode": mode, "theta": 0.1, "tau": 0.5, "trace": True}
                fields: dict[str, Any] = {"max_tokens": 120, "ignore_eos": True, "stop": stop, "stream": True}
                options = {"include_usage": True}
                traced = payloads((await server.ask(decoding=decoding, stream_options=options, **fields)).text)
                *_, last = traced
                check(traced, last)
                if mode != "mars":  # which tokens pass is up to random confidences
                    plain = payloads((await server.ask(decoding=decoding | {"trace": False}, **fields)).text)
                    assert joined(plain) == joined(traced)
                    assert not any("decoding" in choice for chunk in plain for choice in chunk["choices"])
            assert await server.idle()

    run_in_loop(run())


def check(traced: list[dict[str, Any]], last: dict[str, Any]) -> None:
    choices = [choice for chunk in traced for choice in chunk["choices"]]
    commits = [(choice["delta"]["content"], choice["decoding"]) for choice in choices if "decoding" in choice]
    for content, commit in commits:
        assert "".join(token["text"] for token in commit["tokens"]) == content
        assert commit["accepted"] == sum(token["kind"] == TokenKind.ACCEPTED for token in commit["tokens"])
    traces = [commit for _, commit in commits]
    assert all(len(commit["rejected"]) == commit["drafted"] - commit["accepted"] for commit in traces[:-1])
    report = last["metrics"]["speculative_decoding"]
    assert sum(len(commit["tokens"]) for commit in traces) == last["usage"]["completion_tokens"]
    assert sum(commit["drafted"] for commit in traces) == report["draft_tokens"]
    assert sum(commit["accepted"] for commit in traces) == report["accepted_tokens"]
    if report["mode"] in ("lossless", "fused", "prove") and len(traces) > 20:
        assert any(commit["rejected"] for commit in traces)
    cycles = [commit["cycle"] for commit in traces]
    assert cycles == sorted(cycles)
    assert cycles[0] == 1
    assert cycles[-1] <= report["cycles"]


def test_each_choice_has_its_own_trace() -> None:
    async def run() -> None:
        async with toy_server() as server:
            reply = await server.ask(stream=True, n=2, max_tokens=40, decoding={"mode": "lossless", "trace": True})
            for index in range(2):
                own = [c for chunk in payloads(reply.text) for c in chunk["choices"] if c["index"] == index]
                texts = [token["text"] for c in own if "decoding" in c for token in c["decoding"]["tokens"]]
                assert "".join(texts) == joined(payloads(reply.text), index)

    run_in_loop(run())


def test_a_trace_without_a_stream_is_refused() -> None:
    async def run() -> None:
        async with toy_server() as server:
            error = (await server.ask(decoding={"trace": True})).json()["error"]
            assert error["param"] == "decoding.trace"

    run_in_loop(run())
