"""Fuzzed requests: whatever comes, no reply is a server's fault, and the server is as it was before.

Some hundred requests by default; PROVE_FUZZ=10000 sets how many. Requests come from the API's own description
(schemathesis: allowed ones, and ones just outside), and from `hostile`.
"""

import json
import os
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from schemathesis.generation.modes import GenerationMode

from services.api.openapi import describe
from services.config.limits import RequestLimits
from tests.services.fuzz.hostile import CONTENT_TYPES, METHODS, PATHS, damaged, not_json, odd_fields
from tests.services.fuzz.server import Threaded, threaded_server
from tests.services.toy_server import body

REQUESTS = int(os.environ.get("PROVE_FUZZ", "500"))
LONG = REQUESTS > 1000
CHAT = "/v1/chat/completions"
LIMITS = {"max_completion_tokens": 12, "max_choices": 3, "max_body_bytes": 200_000}
TIMEOUT_S = 60.0
STATUSES: Counter[int] = Counter()

pytestmark = pytest.mark.timeout(3600 if LONG else 600)


def fuzzed(share: float) -> settings:
    """Settings of a test that has this share of all requests."""
    return settings(
        max_examples=max(10, round(share * REQUESTS)),
        deadline=None,
        database=None,
        derandomize=not LONG,  # the short form is the same each time
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Threaded]:
    with threaded_server(limits=LIMITS) as running:
        before = _answer(running)
        yield running
        assert _answer(running) == before
        assert httpx.get(f"{running.url}/health").status_code == 200
        assert running.run(running.server.idle())
    print(f"replies by status: {dict(sorted(STATUSES.items()))}")
    if STATUSES.total() > REQUESTS / 2:  # not a part of the tests alone
        assert {200, 400, 404} <= STATUSES.keys()  # else nothing was tried


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


def _answer(running: Threaded) -> str:
    reply = httpx.post(running.url + CHAT, json=body(max_tokens=12), timeout=TIMEOUT_S)
    content: str = reply.json()["choices"][0]["message"]["content"]
    return content


def judge(status: int, content_type: str, text: str, *, hurried: bool) -> None:
    """Raise unless a reply is one that a healthy server may give; `hurried`: the request has a time limit."""
    assert status < 500 or status == 503 or (status == 504 and hurried), (status, text[:500])
    if status >= 400:
        assert json.loads(text)["error"]["message"], text
    elif content_type.startswith("text/event-stream"):
        frames = [line for line in text.split("\n\n") if line]
        assert frames[-1] == "data: [DONE]"
        failures = [frame for frame in frames if '"server_error"' in frame]
        assert all(hurried and '"code":"timeout"' in frame for frame in failures), text


def judge_reply(reply: requests.Response) -> None:
    """The same of a reply; one to HEAD has no body to judge."""
    STATUSES[reply.status_code] += 1
    if reply.request.method == "HEAD":
        assert reply.status_code < 500
    else:
        asked = reply.request.body or b""
        hurried = b'"timeout"' in (asked.encode() if isinstance(asked, str) else asked)
        judge(reply.status_code, reply.headers.get("content-type", ""), reply.content.decode(), hurried=hurried)


def sent(case: Any, server: Threaded, session: requests.Session) -> requests.Response:
    """The reply to a case, whole: schemathesis itself would stop reading a long stream."""
    return session.request(**case.as_transport_kwargs(base_url=server.url), timeout=TIMEOUT_S)


SCHEMA = schemathesis.openapi.from_dict(describe("toy", RequestLimits(**LIMITS), guarded=False))  # type: ignore[arg-type]
ALLOWED = SCHEMA[CHAT]["POST"].as_strategy(generation_mode=GenerationMode.POSITIVE)
FORBIDDEN = SCHEMA[CHAT]["POST"].as_strategy(generation_mode=GenerationMode.NEGATIVE)
OTHERS = st.one_of(
    *(
        SCHEMA[path]["GET"].as_strategy(generation_mode=mode)
        for path in ("/v1/models/{name}",)
        for mode in GenerationMode
    )
)


def agreed(fields: Any) -> Any:
    """A body of the description whose fields do not contradict each other, which it cannot say."""
    if not isinstance(fields, dict):
        return fields
    leave = {"min_tokens", "max_completion_tokens", "stop_token_ids", "logit_bias"}
    leave |= set() if fields.get("logprobs") else {"top_logprobs"}
    leave |= set() if fields.get("stream") else {"stream_options"}
    exact = {**(fields.get("decoding") or {}), "mode": "auto", "trace": None, "gate": None}
    return {name: value for name, value in fields.items() if name not in leave} | {"decoding": exact}


@given(case=ALLOWED, agree=st.booleans())
@fuzzed(0.35)
def test_requests_that_the_description_allows(
    server: Threaded, session: requests.Session, case: Any, agree: bool
) -> None:
    if agree:
        case.body = agreed(case.body)
    note(repr(case.body))
    judge_reply(sent(case, server, session))


@given(case=FORBIDDEN)
@fuzzed(0.2)
def test_requests_that_the_description_forbids(server: Threaded, session: requests.Session, case: Any) -> None:
    note(repr(case.body))
    judge_reply(sent(case, server, session))


@given(case=OTHERS)
@fuzzed(0.05)
def test_other_routes(server: Threaded, session: requests.Session, case: Any) -> None:
    judge_reply(sent(case, server, session))


@given(data=odd_fields() | not_json() | damaged())
@fuzzed(0.25)
def test_hostile_json(server: Threaded, session: requests.Session, data: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    judge_reply(session.post(server.url + CHAT, data=data, headers=headers, timeout=TIMEOUT_S))


@given(method=METHODS, path=PATHS, kind=CONTENT_TYPES, data=st.binary(max_size=3000))
@fuzzed(0.1)
def test_random_bytes(
    server: Threaded, session: requests.Session, method: str, path: str, kind: str, data: bytes
) -> None:
    headers = {"Content-Type": kind}
    reply = session.request(method, server.url + path, data=data, headers=headers, timeout=TIMEOUT_S)
    judge_reply(reply)


@given(data=st.binary(min_size=1, max_size=300), begun=st.booleans())
@fuzzed(0.05)
def test_bytes_that_are_no_http(server: Threaded, data: bytes, begun: bool) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 300\r\n\r\n" if begun else b""
    with socket.create_connection(("127.0.0.1", server.server.port), timeout=TIMEOUT_S) as connection:
        connection.sendall(head + data)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as replies:
            status = replies.readline().split(b" ", 2)[1:2]
    assert not status or int(status[0]) < 500
