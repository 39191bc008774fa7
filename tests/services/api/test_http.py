"""The REST API end to end over toy replicas: text, streams, limits, errors, and clients that leave."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.services.api.streams import joined, payloads
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import CONTEXT, ToyServer, body, toy_server

MODES = ["ar", "lossless", "prove", "speculative"]
LONG: dict[str, Any] = {"max_tokens": 1500, "ignore_eos": True}


def _text(reply: httpx.Response) -> str:
    assert reply.status_code == 200, reply.text
    content: str = reply.json()["choices"][0]["message"]["content"]
    return content


def _error(reply: httpx.Response, status: int) -> dict[str, Any]:
    assert reply.status_code == status, reply.text
    error: dict[str, Any] = reply.json()["error"]
    return error


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_every_exact_mode_says_the_same_streamed_or_not(ignore_eos: bool) -> None:
    async def run() -> None:
        async with toy_server() as server:
            fields: dict[str, Any] = {"max_tokens": 150, "ignore_eos": ignore_eos}
            whole = [await server.ask(decoding={"mode": mode}, **fields) for mode in MODES]
            streamed = [await server.ask(decoding={"mode": mode}, stream=True, **fields) for mode in MODES]
            assert len({_text(reply) for reply in whole}) == 1
            assert {joined(payloads(reply.text)) for reply in streamed} == {_text(whole[0])}
            assert len({json.dumps(reply.json()["usage"]) for reply in whole}) == 1
            for mode, reply in zip(MODES, whole, strict=True):
                report = reply.json()["metrics"]["speculative_decoding"]
                assert report["mode"] == mode
                assert report["committed_tokens"] == reply.json()["usage"]["completion_tokens"]
            assert await server.idle()

    run_in_loop(run())


def test_a_stream_has_the_shape_of_openais() -> None:
    async def run() -> None:
        async with toy_server() as server:
            fields: dict[str, Any] = {"max_tokens": 40, "decoding": {"mode": "prove"}}
            options = {"include_usage": True}
            reply = await server.ask(stream=True, stream_options=options, **fields)
            assert reply.headers["content-type"].startswith("text/event-stream")
            chunks = payloads(reply.text)
            assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
            roles = [choice["delta"].get("role") for chunk in chunks for choice in chunk["choices"]]
            assert roles == ["assistant"] + [None] * (len(roles) - 1)
            reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
            assert reasons[:-1] == [None] * (len(reasons) - 1)
            assert reasons[-1] in ("stop", "length")
            assert chunks[-1]["choices"] == []
            assert chunks[-1]["usage"] == (await server.ask(**fields)).json()["usage"]

    run_in_loop(run())


def test_three_choices_are_equal_and_each_ends() -> None:
    async def run() -> None:
        async with toy_server() as server:
            reply = await server.ask(stream=True, n=3, max_tokens=40, decoding={"mode": "prove"})
            chunks = payloads(reply.text)
            assert len({joined(chunks, index) for index in range(3)}) == 1
            ends = [choice["index"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
            assert sorted(ends) == [0, 1, 2]
            single = await server.ask(max_tokens=40)
            assert joined(chunks, 2) == _text(single)
            assert await server.idle()

    run_in_loop(run())


def test_max_tokens_defaults_to_the_room_there_is() -> None:
    async def run() -> None:
        async with toy_server() as server:
            reply = await server.ask(ignore_eos=True)
            assert reply.json()["usage"]["total_tokens"] == CONTEXT
            assert reply.json()["choices"][0]["finish_reason"] == "length"
        async with toy_server(tokens=512) as server:
            reply = await server.ask(ignore_eos=True)
            assert reply.json()["usage"]["total_tokens"] == 512

    run_in_loop(run())


def test_what_does_not_fit_is_refused_with_the_true_numbers() -> None:
    async def run() -> None:
        async with toy_server() as server:
            prompt = (await server.ask(max_tokens=1)).json()["usage"]["prompt_tokens"]
            for name in ("max_tokens", "max_completion_tokens"):
                error = _error(await server.ask(**{name: CONTEXT}), 400)
                assert (error["code"], error["param"]) == ("context_length_exceeded", name)
            assert all(str(number) in error["message"] for number in (CONTEXT, prompt, prompt + CONTEXT))
            error = _error(await server.ask("x y " * CONTEXT), 400)
            assert error["param"] == "messages"
        async with toy_server(tokens=256) as server:
            error = _error(await server.ask("x y " * 200, max_tokens=1), 400)
            assert (error["code"], error["param"]) == ("cache_too_small", "messages")
            error = _error(await asyncio.wait_for(server.ask(max_tokens=400), 10), 400)
            assert (error["code"], error["param"]) == ("cache_too_small", "max_tokens")
            assert all(str(number) in error["message"] for number in (256, prompt, prompt + 400))

    run_in_loop(run())


def test_modes_that_need_a_verifier_say_so() -> None:
    async def run() -> None:
        async with toy_server(verifier=False) as server:
            for mode in ("prove", "speculative"):
                error = _error(await server.ask(decoding={"mode": mode}), 400)
                assert mode in error["message"]
                assert error["param"] == "decoding.mode"
            _text(await server.ask(max_tokens=5))

    run_in_loop(run())


def test_models_health_and_unknown_names() -> None:
    async def run() -> None:
        async with toy_server() as server:
            assert (await server.client.get("/health")).status_code == 200
            assert (await server.client.get("/v1/models")).json()["data"][0]["id"] == "toy"
            assert (await server.client.get("/v1/models/toy")).json()["object"] == "model"
            assert _error(await server.client.get("/v1/models/a/b"), 404)["code"] == "model_not_found"
            assert _error(await server.ask(model="other"), 404)["code"] == "model_not_found"
            _error(await server.client.get("/nothing"), 404)
            _error(await server.client.get("/v1/chat/completions"), 405)
            error = _error(await server.ask(stop_token_ids=[10**6]), 400)
            assert error["param"] == "stop_token_ids"
            assert error["code"] == "invalid_value"

    run_in_loop(run())


def test_head_is_get_without_the_body() -> None:
    async def run() -> None:
        async with toy_server() as server:
            for path in ("/health", "/v1/models", "/v1/models/toy"):
                head, get = await server.client.head(path), await server.client.get(path)
                assert (head.status_code, head.content) == (200, b"")
                assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.content))
            assert (await server.client.head("/v1/models/other")).status_code == 404
            refused = await server.client.post("/v1/models", json={})
            assert _error(refused, 405)["message"].endswith("allowed: GET, HEAD")

    run_in_loop(run())


@pytest.mark.parametrize("content", ["[]", '"x"', "{", "", "null"])
def test_bodies_that_are_no_objects(content: str) -> None:
    async def run() -> None:
        async with toy_server() as server:
            headers = {"Content-Type": "application/json"}
            reply = await server.client.post("/v1/chat/completions", content=content, headers=headers)
            _error(reply, 400)
            _text(await server.ask(max_tokens=2))

    run_in_loop(run())


def test_a_body_beyond_the_limit_is_413() -> None:
    async def run() -> None:
        async with toy_server(limits={"max_body_bytes": 2000}) as server:
            _error(await server.ask("x" * 3000), 413)

    run_in_loop(run())


def test_the_deadline_ends_a_request_as_an_error() -> None:
    async def run() -> None:
        async with toy_server(limits={"request_timeout_s": 0.2}) as server:
            assert _error(await server.ask(**LONG), 504)["code"] == "timeout"
            chunks = payloads((await server.ask(stream=True, **LONG)).text)
            assert chunks[-1]["error"]["code"] == "timeout"
            assert not any(choice["finish_reason"] for chunk in chunks[:-1] for choice in chunk["choices"])
            assert await server.idle()

    run_in_loop(run())


async def _leave(server: ToyServer, **fields: Any) -> None:
    """Send a request and close the socket once decoding has begun."""
    writer = await _post(server, **fields)
    while not server.proposer.engine.stats().passes:
        await asyncio.sleep(0.01)
    writer.close()


async def _post(server: ToyServer, **fields: Any) -> asyncio.StreamWriter:
    """Send a request; the connection it was sent on."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    content = json.dumps(body(**fields)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    return writer


@pytest.mark.parametrize("mode", ["ar", "prove"])
@pytest.mark.parametrize("stream", [True, False])
def test_clients_that_leave_free_their_pages(mode: str, stream: bool) -> None:
    async def run() -> None:
        async with toy_server(tokens=65536) as server:
            decoding = {"mode": mode, "theta": 0.1}
            await asyncio.gather(*(_leave(server, stream=stream, decoding=decoding, **LONG) for _ in range(20)))
            assert await server.idle()
            passes = server.proposer.engine.stats().passes
            assert 0 < passes < 1400
            _text(await server.ask(max_tokens=5))

    run_in_loop(run())


@pytest.mark.parametrize("mode", MODES)
def test_a_replica_lost_in_mid_stream_changes_no_character(mode: str) -> None:
    async def run() -> None:
        async with toy_server() as server:
            fields: dict[str, Any] = {"max_tokens": 300, "ignore_eos": True, "decoding": {"mode": mode, "theta": 0.1}}
            expected = await server.ask(**fields)
            stream = asyncio.create_task(server.ask(stream=True, **fields))
            for replica in (server.proposer, server.verifier):
                await asyncio.sleep(0.05)
                for connection in list(replica.server.connections):
                    connection.close()
            chunks = payloads((await stream).text)
            assert joined(chunks) == _text(expected)
            assert await server.idle()

    run_in_loop(run())
