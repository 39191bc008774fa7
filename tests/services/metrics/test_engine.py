"""What an engine's metrics say while a real engine runs, starved or not."""

import asyncio
import logging

import pytest

from services.metrics.catalogue import CATALOGUE
from services.metrics.engine import BusyFraction, EngineMetrics
from services.metrics.metric import Part
from services.metrics.registry import Identity, Registry
from tests.services.metrics.reading import total
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import ToyServer, toy_server


def _observed(server: ToyServer) -> Registry:
    registry = Registry(Identity(Part.PROPOSER, "p", "toy"))
    engine = server.proposer.engine
    engine.observe(EngineMetrics(registry, engine.stats))
    return registry


def test_passes_pages_and_prefixes_are_counted() -> None:
    async def run() -> None:
        async with toy_server(tokens=1024) as server:
            registry = _observed(server)
            text = "one prompt for both " * 5
            fields = {"max_tokens": 20, "ignore_eos": True, "decoding": {"mode": "lossless"}}
            replies = [(await server.ask(text, **fields)).json() for _ in range(2)]
            assert await server.idle()
            prompt = replies[0]["usage"]["prompt_tokens"]
            passes = total(registry, "passes_total")
            told = [reply["metrics"]["speculative_decoding"]["passes"]["proposer"] for reply in replies]
            assert passes == sum(told)
            assert passes == total(registry, "pass_seconds_count") == total(registry, "rows_per_pass_count")
            assert total(registry, "rows_total") == total(registry, "rows_per_pass_sum")
            assert total(registry, "queue_wait_seconds_count") == passes  # each call took one pass
            assert total(registry, "prefill_seconds_count") == 2
            assert total(registry, "prefix_cache_queried_tokens_total") == 2 * prompt
            assert total(registry, "prefix_cache_hit_tokens_total") == (prompt - 1) // 16 * 16
            assert total(registry, "kv_pages") == 1024 // 16
            assert total(registry, "kv_pages", state="held") == 0
            assert total(registry, "kv_pages", state="cached") > 0
            assert total(registry, "kv_starved_seconds_total") == total(registry, "preemptions_total") == 0
            assert total(registry, "sessions") == total(registry, "sessions_open") == 0

    run_in_loop(run())


def test_the_controllers_choices_are_counted() -> None:
    async def run() -> None:
        async with toy_server() as server:
            registry = _observed(server)
            reply = (await server.ask(max_tokens=30, decoding={"mode": "auto"})).json()
            passes = reply["metrics"]["speculative_decoding"]["passes"]["proposer"]
            assert total(registry, "controller_choices_total") == passes

    run_in_loop(run())


def test_a_starved_pool_is_seen_and_said(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with toy_server(tokens=256, reports=False) as server:
            registry = _observed(server)
            with caplog.at_level(logging.WARNING, logger="prove_core.engine.scheduler"):
                asks = (server.ask(f"prompt {i} " * 8, max_tokens=60, decoding={"mode": "ar"}) for i in range(6))
                replies = await asyncio.gather(*asks)
            assert all(reply.status_code == 200 for reply in replies)
            assert total(registry, "kv_starved_seconds_total") > 0
            assert total(registry, "kv_starved_seconds_total") <= total(registry, "busy_seconds_total")
            assert "KV pool starved" in caplog.text

    run_in_loop(run())


def test_busy_is_a_share_of_the_last_seconds() -> None:
    busy = BusyFraction(10.0)
    start = busy._readings[0][0]
    assert busy.read(start + 10, 5.0) == 0.5
    assert busy.read(start + 20, 15.0) == 1.0
    assert busy.read(start + 30, 15.0) == 0.0
    assert busy.read(start + 31, 15.5) == pytest.approx(0.5 / 11)


def test_an_engine_exports_what_is_declared_for_it() -> None:
    async def run() -> None:
        async with toy_server() as server:
            exported = {family.name for family in _observed(server).collector.collect()}
            declared = {metric.name.removesuffix("_total") for metric in CATALOGUE if Part.PROPOSER in metric.parts}
            assert exported == declared

    run_in_loop(run())
