"""A Router's metrics add up to what its users were told."""

import asyncio
import json
from typing import Any

import pytest

from prove_core.errors import EngineStopped, RequestError
from prove_core.types import Mode
from services.api.errors import ApiError, overloaded
from services.metrics.catalogue import CATALOGUE
from services.metrics.metric import Part
from services.metrics.registry import Registry
from services.metrics.requests import outcome_of
from services.metrics.router import OUTCOMES
from tests.services.metrics.reading import total
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import ToyServer, body, toy_server

SPEC = "spec_decode_num_"


async def _load(server: ToyServer) -> list[dict[str, Any]]:
    """Requests of every mode, some with several choices, some ending at a stop string or in the middle of a block."""
    fields: list[dict[str, Any]] = [{"decoding": {"mode": mode}, "max_tokens": 37} for mode in Mode]
    fields += [{"decoding": {"mode": mode}, "max_tokens": 11, "n": 2} for mode in ("prove", "lossless", "auto")]
    fields += [{"decoding": {"mode": mode}, "stop": ["a", "e"], "max_tokens": 90} for mode in ("fused", "speculative")]
    replies = await asyncio.gather(*(server.ask(f"prompt {i}", **each) for i, each in enumerate(fields)))
    assert all(reply.status_code == 200 for reply in replies)
    return [reply.json() for reply in replies]


def test_sums_equal_what_replies_told() -> None:
    async def run() -> None:
        async with toy_server() as server:
            replies = await _load(server)
            _compare(server.registry, replies)

    run_in_loop(run())


def _compare(registry: Registry, replies: list[dict[str, Any]]) -> None:
    for mode in Mode:
        told = [reply for reply in replies if reply["metrics"]["speculative_decoding"]["mode"] == mode]
        counts = [reply["metrics"]["speculative_decoding"] for reply in told]
        usage = [reply["usage"] for reply in told]
        expected = {
            "prompt_tokens_total": sum(each["prompt_tokens"] for each in usage),
            "generation_tokens_total": sum(each["completion_tokens"] for each in usage),
            "committed_tokens_total": sum(each["completion_tokens"] for each in usage),
            "cycles_total": sum(each["cycles"] for each in counts),
            SPEC + "drafts_total": sum(each["drafts"] for each in counts),
            SPEC + "draft_tokens_total": sum(each["draft_tokens"] for each in counts),
            SPEC + "accepted_tokens_total": sum(each["accepted_tokens"] for each in counts),
            SPEC + "accepted_tokens_per_pos_total": sum(each["accepted_tokens"] for each in counts),
            "request_outcomes_total": len(told),
            "e2e_request_latency_seconds_count": len(told),
            "time_to_first_token_seconds_count": len(told),
            "tokens_per_cycle_sum": sum(each["completion_tokens"] for each in usage),
        }
        assert {name: total(registry, name, mode=mode) for name in expected} == expected
        for position in range(8):
            accepted = sum(sum(each["accepted_per_position"][position : position + 1]) for each in counts)
            name = SPEC + "accepted_tokens_per_pos_total"
            assert total(registry, name, mode=mode, position=str(position)) == accepted
        choices = sum(len(reply["choices"]) for reply in told)
        later = total(registry, "inter_token_latency_seconds_count", mode=mode)
        assert later <= expected["generation_tokens_total"] - choices  # the first commit of a choice has no gap
        for outcome in ("stop", "length"):
            ended = sum(outcome == max(choice["finish_reason"] for choice in reply["choices"]) for reply in told)
            if all(len(reply["choices"]) == 1 for reply in told):
                assert total(registry, "request_outcomes_total", mode=mode, outcome=outcome) == ended


@pytest.mark.parametrize(
    ("mode", "phases"),
    [
        ("ar", {"propose", "gate", "queue"}),
        ("fused", {"propose", "gate", "queue"}),
        ("lossless", {"propose", "verify", "gate", "queue"}),
        ("prove", {"propose", "verify", "gate", "queue", "channel"}),
        ("speculative", {"propose", "verify", "gate", "queue", "channel"}),
    ],
)
def test_a_cycle_has_the_phases_of_its_mode(mode: str, phases: set[str]) -> None:
    async def run() -> None:
        async with toy_server() as server:
            reply = (await server.ask(max_tokens=24, decoding={"mode": mode})).json()
            told = reply["metrics"]["speculative_decoding"]
            spent = {
                phase: total(server.registry, "cycle_time_seconds_sum", mode=mode, phase=phase)
                for phase in ("propose", "verify", "gate", "queue", "channel")
            }
            assert {phase for phase, seconds in spent.items() if seconds} == phases
            assert sum(spent.values()) < told["total_seconds"]
            assert spent["propose"] + spent["verify"] <= told["pass_seconds"] * (1 + 1e-9)

    run_in_loop(run())


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_is_counted_with_what_it_got(stream: bool) -> None:
    async def run() -> None:
        async with toy_server() as server:
            fields = body(stream=stream, max_tokens=1500, ignore_eos=True, decoding={"mode": "ar"})
            asking = asyncio.create_task(server.client.post("/v1/chat/completions", json=fields))
            while not total(server.registry, "generation_tokens_total"):
                await asyncio.sleep(0.005)
            asking.cancel()
            while not total(server.registry, "request_outcomes_total"):
                await asyncio.sleep(0.005)
            assert total(server.registry, "request_outcomes_total", outcome="cancelled", mode="ar") == 1
            assert total(server.registry, "request_outcomes_total") == 1
            tokens = total(server.registry, "generation_tokens_total")
            assert tokens == total(server.registry, "tokens_per_cycle_sum") + 1  # its last cycle did not end
            assert total(server.registry, "e2e_request_latency_seconds_count") == 0

    run_in_loop(run())


def test_refused_requests_are_outcomes() -> None:
    async def run() -> None:
        async with toy_server(router={"max_ongoing_requests": 1}, admission={"max_queued_requests": 0}) as server:
            assert (await server.ask(max_tokens=0)).status_code == 400
            assert (await server.client.post("/v1/chat/completions", content=b"{")).status_code == 400
            assert (await server.ask(max_tokens=99999)).status_code == 400
            running = asyncio.create_task(server.ask(max_tokens=1500, ignore_eos=True, decoding={"mode": "ar"}))
            while not server.service.running:
                await asyncio.sleep(0.001)
            assert (await server.ask()).status_code == 429
            running.cancel()
            assert total(server.registry, "request_outcomes_total", outcome="rejected", mode="unknown") == 3
            assert total(server.registry, "request_outcomes_total", outcome="overloaded") == 1

    run_in_loop(run())


def test_requests_that_are_refused_before_they_are_read_are_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of completions alone: whoever looks for a page without a key has made no request."""
    monkeypatch.setenv("TEST_KEYS", "key-0123456789abcdef")
    chat, good = "/v1/chat/completions", {"Authorization": "Bearer key-0123456789abcdef"}

    async def run() -> None:
        async with toy_server(security={"api_keys_env": "TEST_KEYS"}) as server:
            for headers in ({}, {"Authorization": "Bearer x"}, {**good, "x-request-id": "no good"}):
                assert (await server.client.post(chat, json=body(), headers=headers)).status_code in (400, 401)
                for method, path in (("GET", chat), ("GET", "/v1/models"), ("POST", "/nothing")):
                    assert (await server.client.request(method, path, headers=headers)).status_code in (400, 401)
            assert total(server.registry, "request_outcomes_total", outcome="rejected", mode="unknown") == 3
            assert total(server.registry, "request_outcomes_total") == 3

    run_in_loop(run())


def test_a_late_request_is_a_timeout() -> None:
    async def run() -> None:
        async with toy_server(limits={"request_timeout_s": 0.01}) as server:
            reply = await server.ask(max_tokens=1500, ignore_eos=True, stream=True)
            assert "timeout" in json.dumps(reply.text)
            assert total(server.registry, "request_outcomes_total", outcome="timeout") == 1

    run_in_loop(run())


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (asyncio.CancelledError(), "cancelled"),
        (GeneratorExit(), "cancelled"),
        (overloaded(), "overloaded"),
        (ApiError(504, "late"), "timeout"),
        (RequestError("no"), "rejected"),
        (EngineStopped("gone"), "failed"),
        (ZeroDivisionError(), "failed"),
    ],
)
def test_every_failure_is_an_outcome(error: BaseException, outcome: str) -> None:
    assert outcome_of(error) == outcome
    assert outcome in OUTCOMES


def test_a_router_exports_what_is_declared_for_it() -> None:
    async def run() -> None:
        async with toy_server() as server:
            exported = {family.name for family in server.registry.collector.collect()}
            declared = {metric.name.removesuffix("_total") for metric in CATALOGUE if Part.ROUTER in metric.parts}
            assert exported == declared - {"prove:placement_groups", "prove:replicas"}  # these two need Ray

    run_in_loop(run())
