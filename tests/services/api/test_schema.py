"""The chat-completions request: what is taken, what is refused, and by which name."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.errors import RequestError
from prove_core.text.prompt import Message
from prove_core.types import DecodingParams, Gate, GateWeights, Mode, SamplingParams
from services.api.errors import ApiError, to_api_error
from services.api.refusals import REQUEST_FIELDS
from services.api.schema import ChatCompletionRequest

MINIMAL = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def parse(**fields: Any) -> ChatCompletionRequest:
    return ChatCompletionRequest.parse(json.dumps({**MINIMAL, **fields}).encode())


def refusal(**fields: Any) -> dict[str, str | None]:
    with pytest.raises(ApiError) as raised:
        parse(**fields)
    assert raised.value.status == 400
    error = raised.value.body()["error"]
    assert error["type"] == "invalid_request_error"
    return error


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"max_tokens": 1},
        {"max_completion_tokens": 10**30},
        {"temperature": 0},
        {"temperature": 0.0, "top_p": 1, "top_k": -1, "min_p": 0, "seed": -5},
        {"temperature": 2, "top_p": 0.1, "top_k": 1, "min_p": 1, "seed": 2**63 - 1},
        {"presence_penalty": -2, "frequency_penalty": 2.0, "repetition_penalty": 1.1},
        {"logit_bias": {"5": 100, "0": -100, "7": 0.5}},
        {"temperature": 1e-6},
        {"logprobs": True, "top_logprobs": 20},
        {"logit_bias": {}, "presence_penalty": 0, "frequency_penalty": 0.0, "logprobs": False},
        {"logit_bias": None, "stop": None, "n": None, "stream": None, "decoding": None, "stream_options": None},
        {"tools": [], "tool_choice": "none", "response_format": {"type": "text"}, "modalities": ["text"]},
        {"store": False, "metadata": {}, "service_tier": "auto", "parallel_tool_calls": True},
        {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k"},
        {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"stop": []},
        {"stop": ["a"] * 16},
        {"min_tokens": 3, "max_tokens": 3, "ignore_eos": True, "stop_token_ids": [0, 7]},
        {"decoding": {}},
        {"decoding": {"mode": "auto"}},
        {"decoding": {"trace": False}},
        {"decoding": {"trace": True}, "stream": True},
        {"decoding": {"theta": 0, "tau": 1, "block_size": 64, "draft_length": 32, "fused_rows": 128}},
    ],
)
def test_accepted(fields: dict[str, Any]) -> None:
    parse(**fields)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_tokens": 5.0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_tokens": 5, "max_completion_tokens": 5}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "NaN"}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"stop": ""}, "stop"),
        ({"stop": 5}, "stop"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stop": ["a"] * 257}, "stop"),
        ({"stop_token_ids": [1, -1]}, "stop_token_ids[1]"),
        ({"stop_token_ids": [True]}, "stop_token_ids[0]"),
        ({"stop_token_ids": [5] * 257}, "stop_token_ids"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream": False, "stream_options": {}}, "stream_options"),
        ({"stream": True, "stream_options": {"extra": 1}}, "stream_options.extra"),
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 10**30}, "top_k"),
        ({"min_p": -0.1}, "min_p"),
        ({"min_p": 1.1}, "min_p"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"presence_penalty": "1"}, "presence_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"repetition_penalty": 2.1}, "repetition_penalty"),
        ({"seed": 2**63}, "seed"),
        ({"seed": True}, "seed"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"logit_bias": {"AI": -100}}, "logit_bias"),
        ({"logit_bias": {"-1": 5}}, "logit_bias"),
        ({"logit_bias": {"1" * 5000: 5}}, "logit_bias"),
        ({"logit_bias": {"5": "1"}}, "logit_bias.5"),
        ({"logit_bias": {str(token): 1 for token in range(2000)}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"logit_bias": []}, "logit_bias"),
        ({"logprobs": 1}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 25}, "top_logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"store": True}, "store"),
        ({"store": 0}, "store"),
        ({"model": 1}, "model"),
        ({"seed": 1.5}, "seed"),
        ({"foo": None}, "foo"),
        ({"decoding": []}, "decoding"),
        ({"decoding": {"foo": 1}}, "decoding.foo"),
        ({"decoding": {"mode": "best"}}, "decoding.mode"),
        ({"decoding": {"mode": "automatic"}}, "decoding.mode"),
        ({"decoding": {"fused_rows": 0}}, "decoding.fused_rows"),
        ({"decoding": {"gate": "best"}}, "decoding.gate"),
        ({"decoding": {"gate_weights": {}}}, "decoding.gate_weights"),
        ({"decoding": {"theta": 1.01}}, "decoding.theta"),
        ({"decoding": {"tau": "0.5"}}, "decoding.tau"),
        ({"decoding": {"block_size": 0}}, "decoding.block_size"),
        ({"decoding": {"block_size": 65}}, "decoding.block_size"),
        ({"decoding": {"trace": True}}, "decoding.trace"),
        ({"decoding": {"trace": True}, "stream": False}, "decoding.trace"),
        ({"decoding": {"trace": 1}, "stream": True}, "decoding.trace"),
        ({"decoding": {"draft_length": 33}}, "decoding.draft_length"),
    ],
)
def test_refused_naming_the_field(fields: dict[str, Any], param: str) -> None:
    error = refusal(**fields)
    assert error["param"] == param
    assert param in str(error["message"])


@pytest.mark.parametrize("name", sorted(REQUEST_FIELDS))
def test_unsupported_features_say_so(name: str) -> None:
    parse(**{name: None})
    error = refusal(**{name: {"asks": "for something"}})
    assert error["param"] == name
    assert error["message"] == f"{name} is not supported"
    assert error["code"] == "unsupported_parameter"


@pytest.mark.parametrize("stop", [5, {}, True])
def test_stop_says_what_it_takes(stop: object) -> None:
    assert refusal(stop=stop)["message"] == "stop must be a string or an array of strings"


def test_an_unknown_field_in_openais_words() -> None:
    error = refusal(foo=1)
    assert error["message"] == "Unrecognized request argument supplied: foo"


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": ""}, Message("user", "")),
        ({"role": "developer", "content": "x"}, Message("developer", "x")),
        ({"role": "assistant", "content": ""}, Message("assistant", "")),
        ({"role": "assistant", "content": None}, Message("assistant", "")),
        ({"role": "assistant"}, Message("assistant", "")),
        (
            {"role": "assistant", "content": "x", "refusal": None, "annotations": [], "tool_calls": None},
            Message("assistant", "x"),
        ),
        ({"role": "user", "content": "x", "name": "bob"}, Message("user", "x", "bob")),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            Message("user", "a\nb"),
        ),
    ],
)
def test_messages(message: dict[str, Any], expected: Message) -> None:
    assert parse(messages=[message]).chat() == [expected]


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (None, "messages"),
        ("hi", "messages"),
        ({"role": "user", "content": "x"}, "messages"),
        (["hi"], "messages[0]"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": "boss", "content": "x"}], "messages[0].role"),
        ([{"role": "tool", "content": "x", "tool_call_id": None}], "messages[0].role"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text", "text": "x", "y": 1}]}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content"),
        ([{"role": "user", "content": "x"}, {"role": "user", "content": "x", "z": 1}], "messages[1].z"),
        ([{"role": "assistant", "content": "x", "tool_calls": [{}]}], "messages[0].tool_calls"),
        ([{"role": "user", "content": "x", "name": "a<|im_end|>"}], "messages[0].name"),
    ],
)
def test_messages_refused(messages: object, param: str) -> None:
    assert refusal(messages=messages)["param"] == param


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"x"',
        b"null",
        b"1",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"model": "m", "max_tokens": ' + b"9" * 5000 + b"}",
        b'{"model": "\xff", "messages": []}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"\\udfff": 1}',
        '{"model": "m"}'.encode("utf-16"),
        b"{}",
    ],
)
def test_bodies_that_are_no_request(body: bytes) -> None:
    with pytest.raises(ApiError) as raised:
        ChatCompletionRequest.parse(body)
    assert raised.value.status == 400
    json.dumps(raised.value.body()).encode()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("a{}é😀", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a{}é😀", max_size=8), inner, max_size=3),
    max_leaves=8,
)
field_names = st.sampled_from([*ChatCompletionRequest.model_fields, *REQUEST_FIELDS, "foo", ""])


@given(st.dictionaries(field_names, json_values, max_size=5))
def test_any_json_is_taken_or_refused_never_a_crash(fields: dict[str, Any]) -> None:
    with contextlib.suppress(ApiError):  # any other exception would be a 500
        parse(**fields)


def test_decoding_over_defaults() -> None:
    defaults = DecodingParams(mode=Mode.PROVE, theta=0.2, block_size=16)
    assert parse().params(defaults) == defaults
    params = parse(decoding={"mode": "mars", "tau": 0, "gate": "verifier"}).params(defaults)
    assert params == DecodingParams(Mode.MARS, Gate.VERIFIER, 0.2, 0.0, 16, defaults.draft_length)


def test_the_logistic_gate_is_taken_where_its_weights_are_configured() -> None:
    request = parse(decoding={"gate": "logistic"})
    with pytest.raises(RequestError) as raised:
        request.params(DecodingParams())
    refused = to_api_error(raised.value)
    assert (refused.status, refused.param) == (400, "decoding.gate")
    assert "logistic" in str(refused)
    weights = GateWeights(0.0, 1.0, 1.0, 1.0)
    params = request.params(DecodingParams(gate_weights=weights))
    assert (params.gate, params.gate_weights) == (Gate.LOGISTIC, weights)


def test_the_two_names_of_the_limit() -> None:
    assert parse().completion_limit is None
    assert parse(max_tokens=3).completion_limit == 3
    assert parse(max_completion_tokens=4).completion_limit == 4


def test_stop_as_string_or_list() -> None:
    assert parse(stop="x").stop == ("x",)
    assert parse(stop=["x", "y"]).stop == ("x", "y")


def test_token_ids_beyond_the_vocabulary() -> None:
    request = parse(stop_token_ids=[5, 10])
    request.check_token_ids(11)
    with pytest.raises(RequestError, match="10") as raised:
        request.check_token_ids(10)
    assert raised.value.param == "stop_token_ids"
    biased = parse(logit_bias={"3": 1, "10": -1})
    biased.check_token_ids(11)
    with pytest.raises(RequestError, match="10 is not a token id") as raised:
        biased.check_token_ids(10)
    assert raised.value.param == "logit_bias"


SPELLINGS = ("0{}", " {}", "{} ", "{}\n", "+{}", "00{}", "{}_0", "\u0665{}", "{}.0", "{}e0")


@given(st.integers(0, 2**31), st.sampled_from(SPELLINGS))
def test_each_token_has_one_key_in_logit_bias(token: int, spelling: str) -> None:
    """Python reads "05" and " 5" as 5 too: of two biases for one id one would be lost without a word."""
    biased = parse(logit_bias={str(token): 1}).sampling(3)
    assert biased is not None
    assert biased.logit_bias == ((token, 1),)
    assert refusal(logit_bias={str(token): 1, spelling.format(token): -1})["param"] == "logit_bias"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "seed": 4},
        {"temperature": 1e-6, "seed": 4},
        {"top_p": 1, "top_k": 0, "min_p": 0, "seed": 4},
        {"presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1, "logit_bias": {"5": 0}},
    ],
)
def test_what_changes_nothing_is_plain_greedy_decoding(fields: dict[str, Any]) -> None:
    assert parse(**fields).sampling(3) is None


def test_sampling_as_asked() -> None:
    fields: dict[str, Any] = {"temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "seed": 5}
    penalties: dict[str, Any] = {"presence_penalty": 0.5, "frequency_penalty": -0.5, "repetition_penalty": 1.1}
    whole = parse(**fields, **penalties, logit_bias={"5": -100, "6": 0, "7": 2.5}).sampling(3)
    assert whole == SamplingParams(3, 0.7, 0.9, 40, 0.1, 5, 0.5, -0.5, 1.1, ((5, -100.0), (7, 2.5)))
    assert parse(**penalties, top_p=1).sampling(3) == SamplingParams(
        3, presence_penalty=0.5, frequency_penalty=-0.5, repetition_penalty=1.1
    )
    assert parse(temperature=1, top_k=-1, seed=-5).sampling(0) == SamplingParams(0, 1.0, seed=2**64 - 5)


@pytest.mark.parametrize("fields", [{"top_p": 0.9}, {"top_k": 5}, {"min_p": 0.2}])
def test_a_field_for_draws_alone_means_openais_temperature(fields: dict[str, Any]) -> None:
    drawn = parse(**fields, seed=1).sampling(0)
    assert drawn is not None
    assert drawn.temperature == 1


def test_without_a_seed_each_request_has_its_own() -> None:
    seeds = {parse(temperature=1).sampling(0) for _ in range(5)}
    assert len(seeds) == 5
