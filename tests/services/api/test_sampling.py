"""Sampling over HTTP: one text per seed, whatever the mode and whatever happens on the way, and what is refused."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import toy_server

EXACT = ["ar", "lossless", "fused", "speculative"]


def _texts(reply: httpx.Response) -> list[str]:
    assert reply.status_code == 200, reply.text
    return [choice["message"]["content"] for choice in reply.json()["choices"]]


def test_a_seed_has_one_text_in_every_exact_mode() -> None:
    async def run() -> None:
        async with toy_server() as server:
            fields: dict[str, Any] = {"max_tokens": 80, "ignore_eos": True, "temperature": 0.8}
            texts = {
                seed: {_texts(await server.ask(seed=seed, decoding={"mode": mode}, **fields))[0] for mode in EXACT}
                for seed in (1, 2, -3)
            }
            assert [len(found) for found in texts.values()] == [1, 1, 1]
            greedy = _texts(await server.ask(max_tokens=80, ignore_eos=True))[0]
            assert len({greedy}.union(*texts.values())) == 4
            assert _texts(await server.ask(max_tokens=80, ignore_eos=True, temperature=1e-6, seed=1)) == [greedy]
            unseeded = [_texts(await server.ask(**fields))[0] for _ in range(2)]
            assert unseeded[0] != unseeded[1]
            assert await server.idle()

    run_in_loop(run())


def test_choices_differ_and_a_seed_repeats_them() -> None:
    async def run() -> None:
        async with toy_server() as server:
            fields: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True, "temperature": 1, "seed": 7}
            first, again = [_texts(await server.ask(n=3, **fields)) for _ in range(2)]
            assert len(set(first)) == 3
            assert first == again
            assert _texts(await server.ask(**fields)) == first[:1]

    run_in_loop(run())


@pytest.mark.parametrize("mode", EXACT)
def test_a_replica_lost_on_the_way_changes_no_character(mode: str) -> None:
    async def run() -> None:
        async with toy_server() as server:
            fields: dict[str, Any] = {"max_tokens": 300, "ignore_eos": True, "temperature": 1, "seed": 5}
            expected = _texts(await server.ask(decoding={"mode": mode}, **fields))
            running = asyncio.create_task(server.ask(decoding={"mode": mode}, **fields))
            for replica in (server.proposer, server.verifier):
                await asyncio.sleep(0.05)
                for connection in list(replica.server.connections):
                    connection.close()
            assert _texts(await running) == expected
            assert await server.idle()

    run_in_loop(run())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": -1}, "temperature"),
        ({"temperature": "NaN"}, "temperature"),
        ({"temperature": 0.7, "decoding": {"mode": "prove"}}, "temperature"),
        ({"temperature": 0.7, "decoding": {"mode": "mars"}}, "temperature"),
        ({"top_p": 0.5, "decoding": {"mode": "mars"}}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"seed": "1"}, "seed"),
        ({"logit_bias": {"999999": 5}}, "logit_bias"),
        ({"logit_bias": {"AI": -100}}, "logit_bias"),
        ({"n": 0}, "n"),
    ],
)
def test_refusals_name_the_field_and_the_server_lives(fields: dict[str, Any], param: str) -> None:
    async def run() -> None:
        async with toy_server() as server:
            reply = await server.ask(max_tokens=2, **fields)
            assert reply.status_code == 400, reply.text
            assert reply.json()["error"]["param"] == param
            taken: dict[str, Any] = {"logit_bias": {}, "presence_penalty": 1, "repetition_penalty": 1.1}
            for mode in ("ar", "prove"):
                _texts(await server.ask(max_tokens=2, decoding={"mode": mode}, **taken))

    run_in_loop(run())
