"""Every failure has OpenAI's shape, over a real application."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient

from prove_core.errors import (
    ContextLengthExceeded,
    EngineStopped,
    PoolExhausted,
    RequestError,
    SessionLost,
)
from services.api.body import read_json_body
from services.api.errors import ApiError, install, model_not_found, overloaded
from services.api.schema import ChatCompletionRequest
from services.channel.errors import ReplicaUnavailable

LIMIT = 1000

FAILURES: dict[str, Exception] = {
    "request": RequestError("bad field", "field"),
    "context": ContextLengthExceeded("too long", "max_tokens"),
    "pool": PoolExhausted("needs 9 pages of 4"),
    "engine": EngineStopped("stopped"),
    "replica": ReplicaUnavailable("no replica"),
    "session": SessionLost("internal detail"),
    "bug": KeyError("internal detail"),
    "model": model_not_found("gpt"),
    "busy": overloaded(7),
    "surrogate": RequestError("odd \ud800", "\udc00"),
    "long": RequestError("x" * 10_000),
}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    app = FastAPI()
    install(app)

    @app.post("/echo")
    async def echo(request: Request) -> dict[str, Any]:
        body = await read_json_body(request, LIMIT)
        return ChatCompletionRequest.parse(body).model_dump(mode="json", exclude_unset=True)

    @app.get("/fail/{name}")
    async def fail(name: str) -> None:
        raise FAILURES[name]

    @app.get("/typed/{number}")
    async def typed(number: int) -> int:
        return number

    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize(
    ("name", "status", "type", "param", "code"),
    [
        ("request", 400, "invalid_request_error", "field", "invalid_value"),
        ("context", 400, "invalid_request_error", "max_tokens", "context_length_exceeded"),
        ("pool", 400, "invalid_request_error", "messages", "cache_too_small"),
        ("engine", 503, "server_error", None, "unavailable"),
        ("replica", 503, "server_error", None, "unavailable"),
        ("session", 500, "server_error", None, None),
        ("bug", 500, "server_error", None, None),
        ("model", 404, "invalid_request_error", "model", "model_not_found"),
        ("busy", 429, "rate_limit_error", None, "overloaded"),
    ],
)
def test_failures(client: TestClient, name: str, status: int, type: str, param: str | None, code: str | None) -> None:
    response = client.get(f"/fail/{name}")
    error = response.json()["error"]
    assert response.status_code == status
    assert (error["type"], error["param"], error["code"]) == (type, param, code)
    assert error["message"]
    assert "internal detail" not in response.text


@pytest.mark.parametrize(("name", "seconds"), [("busy", "7"), ("replica", "2"), ("engine", "2")])
def test_retry_after(client: TestClient, name: str, seconds: str) -> None:
    assert client.get(f"/fail/{name}").headers["retry-after"] == seconds


@pytest.mark.parametrize("name", ["surrogate", "long"])
def test_odd_messages_are_made_printable_and_short(client: TestClient, name: str) -> None:
    response = client.get(f"/fail/{name}")
    assert response.status_code == 400
    assert len(response.json()["error"]["message"]) < 1100


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nowhere", 404), ("DELETE", "/echo", 405)])
def test_unknown_routes(client: TestClient, method: str, path: str, status: int) -> None:
    response = client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert path in response.json()["error"]["message"]
    assert ("allow" in response.headers) == (status == 405)


def test_a_wrong_method_names_the_right_ones(client: TestClient) -> None:
    response = client.delete("/echo")
    error = response.json()["error"]
    assert error["message"] == "Method DELETE is not allowed for /echo; allowed: POST"
    assert error["code"] == "method_not_allowed"
    assert response.headers["allow"] == "POST"


def test_frameworks_own_validation(client: TestClient) -> None:
    response = client.get("/typed/x")
    assert response.status_code == 400
    assert "number" in response.json()["error"]["param"]


GOOD = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "application/json"},
        {"content-type": "application/json; charset=UTF-8"},
        {"content-type": "application/problem+json", "content-encoding": "identity"},
    ],
)
def test_good_bodies(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/echo", content=GOOD, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
    ],
)
def test_bodies_of_another_kind(client: TestClient, headers: dict[str, str]) -> None:
    response = client.post("/echo", content=GOOD, headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"", b"\xff", b'{"model": NaN}', b'{"model": Infinity}'])
def test_bodies_that_are_no_request(client: TestClient, body: bytes) -> None:
    response = client.post("/echo", content=body)
    assert response.status_code == 400
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_duplicate_keys_the_last_one_counts(client: TestClient) -> None:
    body = b'{"model": "a", ' + GOOD[1:]
    assert client.post("/echo", content=body).json()["model"] == "m"


def test_large_bodies(client: TestClient) -> None:
    known = client.post("/echo", content=b" " * (LIMIT + 1))
    chunked = client.post("/echo", content=iter([b" " * 600, b" " * 600]))
    assert known.status_code == chunked.status_code == 413
    assert known.json()["error"]["code"] == "request_too_large"


def test_an_api_error_is_an_exception_with_its_message() -> None:
    assert str(ApiError(418, "teapot")) == "teapot"
