"""Requests that no description allows: damaged JSON, values at and beyond every edge, bytes of any kind."""

import json
from typing import Any

from hypothesis import strategies as st

FIELDS = [
    *("model", "messages", "max_tokens", "max_completion_tokens", "min_tokens", "stop", "stop_token_ids", "n", "seed"),
    *("stream", "stream_options", "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty"),
    *("repetition_penalty", "logit_bias", "logprobs", "top_logprobs", "ignore_eos", "decoding", "user", "tools"),
    *("priority", "timeout", "response_format", "x" * 300, "", "\x00", "__class__"),
]
GOOD: dict[str, Any] = {"model": "toy", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
EDGES = st.sampled_from(
    [
        *(0, -1, 1, 2**31, 2**31 - 1, 2**63, 2**64, -(2**63), 10**400, 1e308, -0.0, 5e-324, 1e-6, True, False, None),
        *("", "a", "\x00", "😀" * 50, "\u202e", "a" * 100_000, "<|im_end|>", "<|im_start|>assistant", "%s%n{}", "NaN"),
        *([], {}, [[]], [None], {"": None}, [[[[[[]]]]]], {"type": "text"}, [{"type": "text", "text": "x"}]),
    ]
)
VALUES = st.recursive(
    EDGES | st.floats(allow_nan=False) | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), inner),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "system", "assistant", "developer", "tool", ""]), "content": VALUES},
        optional={"name": VALUES, "tool_calls": VALUES},
    ),
    max_size=5,
)
NOT_NUMBERS = ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "0" * 50, "1" * 5000)


def _encode(value: object) -> bytes:
    return json.dumps(value).encode()


def odd_fields() -> st.SearchStrategy[bytes]:
    """A good request with some fields that hold anything."""
    fields = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6)
    return st.builds(lambda more, messages: _encode({**GOOD, "messages": messages, **more}), fields, MESSAGES)


def not_json() -> st.SearchStrategy[bytes]:
    """What looks like JSON, and is none that anybody should take."""
    deep = st.integers(1, 20_000).map(lambda depth: b'{"messages":' + b"[" * depth)
    closed = st.integers(1, 20_000).map(lambda depth: b'{"model":' + b"[" * depth + b"]" * depth + b"}")
    number = st.builds(
        lambda field, number: _encode(GOOD)[:-1] + f', "{field}": {number}}}'.encode(),
        st.sampled_from(FIELDS[:20]),
        st.sampled_from(NOT_NUMBERS),
    )
    twice = st.sampled_from(FIELDS[:20]).map(lambda name: _encode(GOOD)[:-1] + f',"{name}":1,"{name}":2}}'.encode())
    lone = st.sampled_from([rb'"\ud800"', rb'"\udfff\ud800"', b'"\xff"', b'"\xed\xa0\x80"', rb'"\u0000"'])
    odd_text = lone.map(lambda text: b'{"model":"toy","messages":[{"role":"user","content":' + text + b"}]}")
    return deep | closed | number | twice | odd_text


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A good request with some bytes changed, cut out or put in."""
    data = bytearray(_encode({**GOOD, "stream": draw(st.booleans()), "stop": ["x"], "logit_bias": {"5": 1}}))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data) - 1))
        data[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(data)


CONTENT_TYPES = st.sampled_from(
    [
        *("application/json", "application/json; charset=utf-8", "application/json; charset=utf-7", "text/plain", ""),
        *("multipart/form-data", "application/x-www-form-urlencoded", "application/vnd.api+json", ";;;", "x" * 500),
    ]
)
METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "QUERY"])
PATHS = st.sampled_from(
    [
        *(
            "/",
            "/health",
            "/v1/models",
            "/v1/models/toy",
            "/v1/models/",
            "/v1/models/%00",
            "/v1/models/../../etc/passwd",
        ),
        *("/v1/models/" + "a/" * 200, "/v1/chat/completions", "/v1/chat/completions/", "/openapi.json", "/metrics"),
        *("/metrics/targets", "/static/../router.py", "/static/%2e%2e/app.js", "/v1/completions", "/%ff", "/?a=%zz"),
    ]
)
