"""Frames and messages: what goes in comes out, and anything else is refused."""

import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core import errors
from prove_core.types import (
    Alternative,
    Branch,
    CallRequest,
    CallResult,
    Commit,
    Continue,
    Continued,
    Cost,
    DecodingParams,
    Draft,
    Drafted,
    Finished,
    FinishReason,
    Floor,
    Fuse,
    Fused,
    Gate,
    GateWeights,
    GenerateRequest,
    Limits,
    Mode,
    Proposal,
    Propose,
    Reading,
    SamplingParams,
    Step,
    Verify,
)
from services.channel.errors import ChannelClosed, MalformedFrame
from services.channel.framing import HEADER, VERSION, Frame, FrameKind, FrameReader, pack
from services.channel.messages import Hello, Message, Release, Welcome, decode, encode, failure, to_error

COMMIT = Commit("session/1", 3, 5, (1, 70000, 2))
SAMPLING = SamplingParams(4, 0.7, 0.9, 40, 0.1, 2**64 - 1, 0.5, -0.5, 1.1, ((5, -100.0), (70000, 2.5)))
GENERATE = GenerateRequest("s", (1,), DecodingParams(), Limits(9), SAMPLING)
MESSAGES: list[Message] = [
    Hello(VERSION, "token"),
    Welcome(),
    Release("session/1"),
    CallRequest(COMMIT, Propose(8)),
    CallRequest(COMMIT, Verify((4, 5)), Floor(9, (2, 3))),
    CallRequest(COMMIT, Draft(4)),
    CallRequest(COMMIT, Draft(4), None, SAMPLING),
    GENERATE,
    CallRequest(COMMIT, Fuse((4, 5), (Branch(0, 3), Branch(2, 1)))),
    CallRequest(COMMIT, Fuse((4, 5), (Branch(0, 3),), (Alternative(1, (7, 8), (0.5, 0.25)), Alternative(0, (6,))))),
    CallRequest(COMMIT, Verify((4, 5), (Alternative(1, (7, 8), (0.5, 0.25)),))),
    CallRequest(COMMIT, Continue((4, 5), (Branch(0, 3), Branch(2, 0)))),
    GenerateRequest("s", (1, 2), DecodingParams(Mode.LOSSLESS, Gate.VERIFIER), Limits(9, frozenset({2, 7}), 1)),
    GenerateRequest(
        "s", (1,), DecodingParams(gate=Gate.LOGISTIC, gate_weights=GateWeights(0.5, 1.0, 2.0, 3.0)), Limits(9)
    ),
    CallResult(Proposal((1, 2), (0.5, 0.25)), 1, 0.5, 0.25),
    CallResult(Reading((1, 2, 3), (0.5, 0.25)), 2, 0.5, 0.25),
    CallResult(Drafted((1, 2)), 2, 0.5, 0.25),
    CallResult(Fused((1, 2, 3), (4,), (0.5,)), 1, 0.5, 0.25),
    CallResult(Fused((1, 2), (4,), (0.5,), (), ((3, 4), (5,)), (Alternative(0, (6,), (0.5,)),)), 1, 0.5, 0.25),
    CallResult(Reading((1, 2), (0.5,), behind=((3, 4), (5,))), 1, 0.5, 0.25),
    CallResult(Continued((Proposal((1, 2), (0.5, 0.25)), Proposal((3,), (1.0,)))), 1, 0.5, 0.25),
    Step((1, 2, 3), 4, 2, Cost(1, 2, 3, 0.5)),
    Step((1, 2, 3), 4, 2, rejected=(9, 8)),
    Finished(FinishReason.STOP, Cost(1, 2, 0, 0.5)),
    failure(errors.RequestError("no", "max_tokens")),
]


def _frames(data: bytes, limit: int = 1 << 20) -> list[Frame]:
    return list(FrameReader(limit).feed(data))


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_message_survives_the_wire(message: Message) -> None:
    (frame,) = _frames(encode(message, 77))
    assert frame.rid == 77
    assert decode(frame) == message
    assert type(decode(frame)) is type(message)


@given(st.lists(st.integers(1, 40), max_size=60))
def test_frames_survive_any_split_of_the_stream(cuts: list[int]) -> None:
    stream = b"".join(encode(message, rid) for rid, message in enumerate(MESSAGES))
    reader, rest = FrameReader(1 << 20), stream
    frames: list[Frame] = []
    for cut in cuts:
        frames += reader.feed(rest[:cut])
        rest = rest[cut:]
    frames += reader.feed(rest)
    assert [decode(frame) for frame in frames] == MESSAGES


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waits_for_more(data: bytes) -> None:
    try:
        for frame in FrameReader(1 << 10).feed(data):
            decode(frame)
    except MalformedFrame:
        pass


@given(st.sampled_from([encode(message, 1) for message in MESSAGES]), st.data())
def test_damaged_bodies_raise_nothing_but_malformed_frame(whole: bytes, data: st.DataObject) -> None:
    index = data.draw(st.integers(HEADER.size, len(whole) - 1)) if len(whole) > HEADER.size else 0
    damaged = bytearray(whole)
    damaged[index] = data.draw(st.integers(0, 255))
    try:
        for frame in _frames(bytes(damaged)):
            decode(frame)
    except MalformedFrame:
        pass


def test_size_limit_holds_before_the_body_arrives() -> None:
    with pytest.raises(MalformedFrame, match="at most 10"):
        _frames(HEADER.pack(11, VERSION, FrameKind.STEP, 1), limit=10)


def test_other_versions_and_kinds_are_refused() -> None:
    with pytest.raises(MalformedFrame, match="version 9"):
        _frames(HEADER.pack(0, 9, FrameKind.STEP, 1))
    with pytest.raises(MalformedFrame, match="kind 200"):
        _frames(HEADER.pack(0, VERSION, 200, 1))


@pytest.mark.parametrize(
    "request_",
    [
        CallRequest(Commit("s", 1, -1, (1,)), Propose(1)),
        CallRequest(Commit("s", 1, 0, (-1,)), Propose(1)),
        CallRequest(Commit("s", 1, 0, (1,)), Propose(0)),
        CallRequest(Commit("s", 1, 0, (1,)), Draft(0)),
        CallRequest(Commit("s", 1, 0, (1,)), Verify((3, -2))),
        CallRequest(Commit("s", 1, 0, (1,)), Verify((3, 2), (Alternative(0, (5, -1)),))),
        CallRequest(Commit("s", 1, 0, (1,)), Verify((3, 2), (Alternative(0, ()),))),
        CallRequest(Commit("s", 1, 0, (1,)), Fuse((3, 2), (), (Alternative(3, (5,)),))),
        CallRequest(Commit("s", 1, 0, (1,)), Fuse((3, 2), (), (Alternative(-1, (5,)),))),
        CallRequest(Commit("s", 1, 0, (1,)), Fuse((3,), (), (Alternative(0, (5,)),)), sampling=SamplingParams(1)),
    ],
)
def test_meaningless_numbers_are_refused(request_: CallRequest) -> None:
    (frame,) = _frames(encode(request_, 1))
    with pytest.raises(MalformedFrame):
        decode(frame)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -1.0},
        {"temperature": 1e-30},
        {"temperature": math.inf},
        {"top_p": 0.0},
        {"top_p": math.nan},
        {"top_k": -1},
        {"min_p": 1.5},
        {"repetition_penalty": 0.0},
        {"presence_penalty": math.nan},
        {"logit_bias": ((3, math.inf),)},
        {"logit_bias": ((-3, 1.0),)},
        {"prompt_length": -1},
    ],
)
def test_sampling_that_cannot_be_computed_is_refused(fields: dict[str, Any]) -> None:
    bad = replace(SAMPLING, **fields)
    for request in (CallRequest(COMMIT, Propose(1), None, bad), replace(GENERATE, sampling=bad)):
        (frame,) = _frames(encode(request, 1))
        with pytest.raises(MalformedFrame):
            decode(frame)


def test_a_type_confusion_is_refused() -> None:
    body = msgspec.msgpack.encode({"tokens": "abc", "drafted": 0, "accepted": 0})
    (frame,) = _frames(pack(FrameKind.STEP, 1, body))
    with pytest.raises(MalformedFrame):
        decode(frame)


def _classes() -> list[type[errors.ProveError]]:
    return [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.ProveError)]


@pytest.mark.parametrize("kind", _classes())
def test_errors_come_back_as_their_class(kind: type[errors.ProveError]) -> None:
    back = to_error(failure(kind("what to do")))
    assert type(back) is kind
    assert str(back) == "what to do"


def test_the_parameter_of_a_request_error_comes_back() -> None:
    back = to_error(failure(errors.RequestError("too long", "max_tokens")))
    assert isinstance(back, errors.RequestError)
    assert back.param == "max_tokens"


def test_an_error_unknown_to_the_peer_travels_as_its_base() -> None:
    assert type(to_error(failure(ChannelClosed("gone")))) is errors.ProveError
