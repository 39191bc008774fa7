"""Each limit of a request: what keeps to it is served, one more is refused by name, and the server sets it."""

from typing import Any

import pytest

from services.config.settings import SettingsError, parse_settings
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import toy_server

LIMITS = {
    "max_messages": 2,
    "max_prompt_tokens": 60,
    "max_completion_tokens": 12,
    "max_choices": 2,
    "max_stops": 2,
    "max_stop_length": 5,
    "max_logit_biases": 3,
}


def _messages(count: int, text: str = "hi") -> list[dict[str, str]]:
    return [{"role": "user", "content": text}] * count


CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("messages", {"messages": _messages(2)}, {"messages": _messages(3)}),
    ("messages", {"messages": _messages(1)}, {"messages": _messages(1, "word " * 60)}),
    ("max_tokens", {"max_tokens": 12}, {"max_tokens": 13}),
    ("max_completion_tokens", {"max_completion_tokens": 12}, {"max_completion_tokens": 13}),
    ("n", {"n": 2}, {"n": 3}),
    ("stop", {"stop": ["a", "b"]}, {"stop": ["a", "b", "c"]}),
    ("stop", {"stop": "abcde"}, {"stop": "abcdef"}),
    ("stop_token_ids", {"stop_token_ids": [5, 6]}, {"stop_token_ids": [5, 6, 7]}),
    ("logit_bias", {"logit_bias": dict.fromkeys("567", 1)}, {"logit_bias": dict.fromkeys("5678", 1)}),
]


@pytest.fixture(scope="module", params=[LIMITS, {}], ids=["set", "defaults"])
def limits(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


def test_limits_hold_where_they_are_set(limits: dict[str, Any]) -> None:
    async def run() -> None:
        async with toy_server(limits=limits) as server:
            for field, within, beyond in CASES:
                reply = await server.ask(**{"max_tokens": 4, **within} if "max_" not in field else within)
                assert reply.status_code == 200, (field, reply.text)
                reply = await server.ask(**{"max_tokens": 4, **beyond} if "max_" not in field else beyond)
                if not limits:
                    assert reply.status_code == 200, (field, reply.text)
                    continue
                assert reply.status_code == 400, (field, reply.text)
                error = reply.json()["error"]
                assert (error["param"], error["code"]) == (field, "invalid_value")
                assert any(str(most) in error["message"] for most in LIMITS.values())
            assert await server.idle()

    run_in_loop(run())


def test_a_completion_without_a_limit_of_its_own_gets_the_servers() -> None:
    async def run() -> None:
        async with toy_server(limits={"max_completion_tokens": 9}) as server:
            reply = await server.ask(ignore_eos=True)
            assert reply.json()["usage"]["completion_tokens"] == 9
            assert reply.json()["choices"][0]["finish_reason"] == "length"

    run_in_loop(run())


def test_a_body_in_chunks_is_limited_too() -> None:
    async def chunks(count: int) -> Any:
        for _ in range(count):
            yield b" " * 500

    async def run() -> None:
        async with toy_server(limits={"max_body_bytes": 2000}) as server:
            post = server.client.post
            headers = {"Content-Type": "application/json"}
            assert (await post("/v1/chat/completions", content=chunks(5), headers=headers)).status_code == 413
            assert (await post("/v1/chat/completions", content=chunks(3), headers=headers)).status_code == 400
            assert (await server.ask(max_tokens=2)).status_code == 200

    run_in_loop(run())


@pytest.mark.parametrize("limit", ["max_choices: 129", "max_stops: 257", "max_logit_biases: 1025", "max_messages: 0"])
def test_limits_have_limits(limit: str) -> None:
    name, value = limit.split(": ")
    with pytest.raises(SettingsError, match=name):
        parse_settings({"limits": {name: int(value)}}, "test")
