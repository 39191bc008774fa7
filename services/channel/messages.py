"""What travels in a frame: the dataclasses of `prove_core.types` as msgpack, decoded into their types."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import get_args

import msgspec

from prove_core import errors
from prove_core.errors import ProveError, RequestError
from prove_core.types import (
    Alternatives,
    Answer,
    Call,
    CallRequest,
    CallResult,
    Commit,
    Continue,
    Continued,
    Draft,
    Drafted,
    Finished,
    Floor,
    Fuse,
    Fused,
    GenerateRequest,
    Proposal,
    Propose,
    Reading,
    SamplingParams,
    Step,
    TokenIds,
    Verify,
)
from services.channel.errors import MalformedBody
from services.channel.framing import Frame, FrameKind, pack


@dataclass(frozen=True, slots=True)
class Hello:
    """A client's first frame. `token` comes with the lease and proves that Serve let the client in."""

    version: int
    token: str


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server's answer to a good `Hello`."""


@dataclass(frozen=True, slots=True)
class Release:
    """Abort whatever runs on a session and free its pages. Not answered."""

    session: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks for a `Pong`. A Router sends it when a replica could have died without its connection noticing."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a `Ping`: the replica's event loop runs."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it travels: the name of its class in `prove_core.errors`, and its message."""

    code: str
    message: str
    param: str | None = None


Message = (
    Hello | Welcome | Release | Ping | Pong | CallRequest | GenerateRequest | CallResult | Step | Finished | Failure
)

# A union of dataclasses has no tag in msgpack: calls and answers are tuples, and the kind names their type.
_BODIES: Mapping[FrameKind, object] = {
    FrameKind.HELLO: Hello,
    FrameKind.WELCOME: Welcome,
    FrameKind.PROPOSE: tuple[Commit, Propose, Floor | None, SamplingParams | None],
    FrameKind.VERIFY: tuple[Commit, Verify, Floor | None, SamplingParams | None],
    FrameKind.DRAFT: tuple[Commit, Draft, Floor | None, SamplingParams | None],
    FrameKind.FUSE: tuple[Commit, Fuse, Floor | None, SamplingParams | None],
    FrameKind.CONTINUE: tuple[Commit, Continue, Floor | None, SamplingParams | None],
    FrameKind.GENERATE: GenerateRequest,
    FrameKind.RELEASE: Release,
    FrameKind.PROPOSAL: tuple[Proposal, int, float, float],
    FrameKind.READING: tuple[Reading, int, float, float],
    FrameKind.DRAFTED: tuple[Drafted, int, float, float],
    FrameKind.FUSED: tuple[Fused, int, float, float],
    FrameKind.CONTINUED: tuple[Continued, int, float, float],
    FrameKind.STEP: Step,
    FrameKind.FINISHED: Finished,
    FrameKind.FAILURE: Failure,
    FrameKind.PING: Ping,
    FrameKind.PONG: Pong,
}
_KIND_OF: Mapping[type, FrameKind] = {
    Hello: FrameKind.HELLO,
    Welcome: FrameKind.WELCOME,
    Release: FrameKind.RELEASE,
    GenerateRequest: FrameKind.GENERATE,
    Step: FrameKind.STEP,
    Finished: FrameKind.FINISHED,
    Failure: FrameKind.FAILURE,
    Ping: FrameKind.PING,
    Pong: FrameKind.PONG,
    Propose: FrameKind.PROPOSE,
    Verify: FrameKind.VERIFY,
    Draft: FrameKind.DRAFT,
    Fuse: FrameKind.FUSE,
    Continue: FrameKind.CONTINUE,
    Proposal: FrameKind.PROPOSAL,
    Reading: FrameKind.READING,
    Drafted: FrameKind.DRAFTED,
    Fused: FrameKind.FUSED,
    Continued: FrameKind.CONTINUED,
}
MAX_LOGPROBS = 20  # OpenAI's
_CALLS = frozenset(_KIND_OF[kind] for kind in get_args(Call))
_ANSWERS = frozenset(_KIND_OF[kind] for kind in get_args(Answer))
REQUESTS = _CALLS | {FrameKind.GENERATE}
REPLIES = _ANSWERS | {FrameKind.STEP, FrameKind.FINISHED, FrameKind.FAILURE}
_DECODERS = {kind: msgspec.msgpack.Decoder(body) for kind, body in _BODIES.items()}
_ENCODE = msgspec.msgpack.Encoder().encode
_ERRORS: Mapping[str, type[ProveError]] = {
    name: value for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, ProveError)
}


def encode(message: Message, rid: int) -> bytes:
    """`message` as one frame."""
    if isinstance(message, CallRequest):
        body = _ENCODE((message.commit, message.call, message.floor, message.sampling))
        return pack(_KIND_OF[type(message.call)], rid, body)
    if isinstance(message, CallResult):
        body = _ENCODE((message.answer, message.passes, message.pass_seconds, message.queue_seconds))
        return pack(_KIND_OF[type(message.answer)], rid, body)
    return pack(_KIND_OF[type(message)], rid, _ENCODE(message))


def decode(frame: Frame) -> Message:
    """The frame's message, of exactly the type its kind promises. Raises `MalformedBody`."""
    try:
        body = _DECODERS[frame.kind].decode(frame.body)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedBody(f"{frame.kind.name} frame: {error}") from error
    if frame.kind in _CALLS:
        request = CallRequest(*body)
        _check(request)
        return request
    if frame.kind in _ANSWERS:
        return CallResult(*body)
    if isinstance(body, GenerateRequest):
        _check_generate(body)
    message: Message = body
    return message


def _check_generate(request: GenerateRequest) -> None:
    limits, params = request.limits, request.params
    sizes = (limits.max_tokens, params.block_size, params.draft_length, params.fused_rows)
    if (
        min(sizes) < 1
        or min(limits.min_tokens, params.overlap_rows) < 0
        or min((*request.prompt, *limits.stop_ids), default=0) < 0
    ):
        raise MalformedBody("generate frame with a negative id, or a limit or size below 1")
    _check_sampling(request.sampling)


def _check(request: CallRequest) -> None:
    """Refuse numbers that have the right type and no meaning, before they reach the engine's thread."""
    commit, call = request.commit, request.call
    block: TokenIds = ()
    sizes: tuple[int, ...] = ()
    places: tuple[int, ...] = ()
    alternatives: Alternatives = ()
    match call:
        case Verify(block, alternatives):
            pass
        case Propose(size) | Draft(size):
            sizes = (size,)
        case Fuse(block, branches, alternatives):
            sizes = tuple(branch.placeholders for branch in branches)
            places = tuple(branch.accepted for branch in branches)
        case Continue(block, branches):
            sizes = tuple(branch.placeholders + 1 for branch in branches)
            places = tuple(branch.accepted for branch in branches)
    if max(places, default=0) > len(block) or len(set(places)) < len(places):
        raise MalformedBody(f"{type(call).__name__} frame with a branch outside its block, or two in one place")
    if not all(0 <= other.accepted <= len(block) and other.tokens for other in alternatives):
        raise MalformedBody(f"{type(call).__name__} frame with an alternative outside its block, or without tokens")
    if alternatives and request.sampling is not None:
        raise MalformedBody(f"{type(call).__name__} frame with alternatives and sampling")
    ids = (*commit.append, *block, *chain.from_iterable(other.tokens for other in alternatives))
    if min((commit.keep, *ids, *places), default=0) < 0 or min(sizes, default=1) < 1:
        raise MalformedBody(f"{type(call).__name__} frame with a negative id, keep or size")
    _check_sampling(request.sampling)


def _check_sampling(params: SamplingParams | None) -> None:
    """Refuse numbers that could not be computed with: a NaN in one row is everybody's failed pass."""
    if params is None:
        return
    numbers = (params.presence_penalty, params.frequency_penalty, *(bias for _, bias in params.logit_bias))
    sound = (
        all(abs(number) <= 1e4 for number in numbers)
        and 1e-4 <= params.repetition_penalty <= 1e4
        and (params.temperature == 0 or 1e-5 <= params.temperature <= 1e4)
        and 0 < params.top_p <= 1
        and 0 <= params.min_p <= 1
        and 0 <= (params.logprobs or 0) <= MAX_LOGPROBS
        and min((params.top_k, params.prompt_length, params.seed, *(token for token, _ in params.logit_bias))) >= 0
    )
    if not sound:
        raise MalformedBody("frame with a sampling number that is out of range")


def failure(error: ProveError) -> Failure:
    """`error` for the wire. A class that `prove_core.errors` lacks travels as its nearest base there."""
    code = next(base.__name__ for base in type(error).__mro__ if base.__name__ in _ERRORS)
    return Failure(code, str(error), error.param if isinstance(error, RequestError) else None)


def to_error(failure: Failure) -> ProveError:
    """The error that the peer raised."""
    error = _ERRORS.get(failure.code, ProveError)
    if issubclass(error, RequestError):
        return error(failure.message, failure.param)
    return error(failure.message)
