"""The description at /openapi.json is true: of what is taken, of what is refused, and of every reply."""

import json
from typing import Any

import jsonschema
import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from services.api.http import create_app
from services.api.openapi import describe
from services.config.limits import RequestLimits
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import ToyServer, body, toy_server

DOCUMENT = describe("toy", RequestLimits(max_completion_tokens=64), guarded=False)


def check(value: Any, name: str, document: dict[str, Any] = DOCUMENT) -> None:
    """Raise `jsonschema.ValidationError` unless `value` is a `name` of the document."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(value)


def test_schemas_are_schemas() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_it_lists_the_routes_there_are() -> None:
    async def run() -> None:
        async with toy_server() as server:

            async def targets() -> list[dict[str, Any]]:
                return []

            routes = _routes(create_app(server.service, targets))
            served = {(route.path.replace(":path", ""), method.lower()) for route in routes for method in route.methods}
            described = {(path, method) for path, item in DOCUMENT["paths"].items() for method in item}
            assert described <= served
            assert {(path, method) for path, method in served - described if method != "head"} <= UNDESCRIBED

    run_in_loop(run())


def _routes(app: FastAPI | APIRouter) -> list[APIRoute]:
    found: list[APIRoute] = []
    for route in app.routes:
        router = getattr(route, "original_router", None)  # of an included one
        found += _routes(router) if router is not None else [route] if isinstance(route, APIRoute) else []
    return found


UNDESCRIBED = {("/openapi.json", "get"), ("/", "get"), ("/static/{name}", "get")}

TAKEN: list[dict[str, Any]] = [
    {},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}, {"role": "assistant"}]},
    {"messages": [{"role": "user", "content": "hi", "name": "bo"}, {"role": "assistant", "tool_calls": []}]},
    {"stop": "x", "n": 2, "seed": 5, "logit_bias": {"5": 1.5}},
    {"stop": ["x", "y"], "temperature": 0.5, "top_k": -1, "min_p": 0},
    {"stream": True, "stream_options": {"include_usage": True}, "decoding": {"mode": "prove", "theta": 0.5}},
    {"tools": [], "response_format": {"type": "text"}, "store": False, "best_of": 1, "stop": None},
    {"logprobs": True, "top_logprobs": 2, "max_completion_tokens": 5},
]
REFUSED: list[dict[str, Any]] = [
    {"messages": []},
    {"messages": [{"role": "tool", "content": "x"}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
    {"messages": [{"role": "user", "content": 5}]},
    {"messages": [{"role": "user"}]},
    {"messages": [{"role": "system", "content": None}]},
    {"stop": ""},
    {"stop": ["a"] * 17},
    {"stop": "x" * 1025},
    {"n": 0},
    {"n": 17},
    {"max_tokens": 65},
    {"logit_bias": {"AI": 1}},
    {"logit_bias": {"05": 1}},
    {"logit_bias": {"5": 101}},
    {"temperature": -1},
    {"tools": [{"type": "function"}]},
    {"model": "other"},
    {"unknown": 1},
    {"decoding": {"mode": "magic"}},
    {"stream_options": {"include_obfuscation": True}, "stream": True},
]


def test_what_it_allows_is_taken_and_what_it_forbids_is_not() -> None:
    async def run() -> None:
        async with toy_server(limits={"max_completion_tokens": 64}) as server:
            for fields in TAKEN:
                check(body(**fields), "ChatCompletionRequest")
                reply = await server.ask(**fields)
                assert reply.status_code == 200, (fields, reply.text)
            for fields in REFUSED:
                with pytest.raises(jsonschema.ValidationError):
                    check(body(**fields), "ChatCompletionRequest")
                reply = await server.ask(**fields)
                assert reply.status_code in (400, 404), (fields, reply.text)
                check(reply.json(), "ErrorReply")

    run_in_loop(run())


async def _frames(server: ToyServer, **fields: Any) -> list[Any]:
    reply = await server.ask(stream=True, **fields)
    lines = [line for line in reply.text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


@pytest.mark.parametrize("mode", ["ar", "auto", "prove"])
def test_replies_are_as_described(mode: str) -> None:
    async def run() -> None:
        async with toy_server() as server:
            fields = {"max_tokens": 30, "decoding": {"mode": mode}}
            check((await server.ask(**fields)).json(), "ChatCompletion")
            scored = fields | ({} if mode == "prove" else {"logprobs": True, "top_logprobs": 1})
            check((await server.ask(**scored)).json(), "ChatCompletion")
            traced = scored | {"decoding": {"mode": mode, "trace": True}}
            for asked in (fields, traced):
                for frame in await _frames(server, stream_options={"include_usage": True}, **asked):
                    check(frame, "ChatCompletionChunk")

    run_in_loop(run())


def test_the_other_routes_reply_as_described() -> None:
    async def run() -> None:
        async with toy_server() as server:
            get = server.client.get
            for path, name in (("/health", "Health"), ("/v1/models", "ModelList"), ("/v1/models/toy", "ModelCard")):
                check((await get(path)).json(), name)
            check((await get("/v1/models/none")).json(), "ErrorReply")
            document = (await get("/openapi.json")).json()
            assert document == json.loads(json.dumps(describe("toy", RequestLimits(), guarded=False)))

    run_in_loop(run())


def test_a_guarded_server_says_so() -> None:
    document = describe("toy", RequestLimits(), guarded=True)
    (name,) = document["components"]["securitySchemes"]
    assert document["security"] == [{name: []}]
    assert document["paths"]["/health"]["get"]["security"] == []
