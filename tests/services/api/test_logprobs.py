"""`logprobs` over HTTP: OpenAI's shape, one entry per token of usage, streamed or not."""

from typing import Any

import pytest

from tests.services.api.streams import payloads
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import toy_server

MODES = ["ar", "lossless", "fused", "speculative", "auto"]
ASKED: dict[str, Any] = {"logprobs": True, "top_logprobs": 3, "max_tokens": 60}


def test_every_mode_has_an_entry_per_token_streamed_or_not() -> None:
    async def run() -> None:
        async with toy_server() as server:
            replies = []
            for mode in MODES:
                whole = (await server.ask(decoding={"mode": mode}, **ASKED)).json()
                entries = whole["choices"][0]["logprobs"]["content"]
                assert len(entries) == whole["usage"]["completion_tokens"] > 10
                replies.append(entries)
                stream = await server.ask(decoding={"mode": mode}, stream=True, **ASKED)
                choices = [choice for chunk in payloads(stream.text) for choice in chunk["choices"]]
                assert [e for choice in choices if choice["logprobs"] for e in choice["logprobs"]["content"]] == entries
            assert all(entries == replies[0] for entries in replies)
            for entry in replies[0]:
                assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
                assert entry["bytes"] is None or bytes(entry["bytes"]).decode() == entry["token"]
                assert [set(top) for top in entry["top_logprobs"]] == [{"token", "logprob", "bytes"}] * 3
            assert len({entry["logprob"] for entry in replies[0]}) > 3

    run_in_loop(run())


@pytest.mark.parametrize("mode", ["ar", "lossless", "fused"])
def test_a_stop_string_cuts_them_with_the_tokens(mode: str) -> None:
    async def run() -> None:
        async with toy_server() as server:
            text = (await server.ask(max_tokens=60)).json()["choices"][0]["message"]["content"]
            middle = text[len(text) // 2 :][:3]
            reply = (await server.ask(decoding={"mode": mode}, stop=[middle], **ASKED)).json()
            (choice,) = reply["choices"]
            assert choice["finish_reason"] == "stop"
            assert len(choice["logprobs"]["content"]) == reply["usage"]["completion_tokens"]

    run_in_loop(run())


def test_not_asked_for_and_not_to_be_had() -> None:
    async def run() -> None:
        async with toy_server() as server:
            assert (await server.ask(max_tokens=5)).json()["choices"][0]["logprobs"] is None
            for mode in ("prove", "mars"):
                refused = await server.ask(decoding={"mode": mode}, logprobs=True)
                assert (refused.status_code, refused.json()["error"]["param"]) == (400, "logprobs")
            none = (await server.ask(max_tokens=5, logprobs=True)).json()["choices"][0]["logprobs"]["content"]
            assert [entry["top_logprobs"] for entry in none] == [[]] * 5

    run_in_loop(run())
