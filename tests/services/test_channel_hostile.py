"""The replica's socket under bytes that no Router sends, with and without the token: others go on, pages come back."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import services.channel.server as channel_server
from prove_core.errors import ProveError
from prove_core.types import (
    Branch,
    CallRequest,
    CallResult,
    Commit,
    DecodingParams,
    Fuse,
    GenerateRequest,
    Limits,
    Mode,
    Proposal,
    Propose,
    SamplingParams,
    Verify,
)
from services.channel.client import Channel, _Unary
from services.channel.errors import MalformedBody
from services.channel.framing import HEADER, MAX_BODY_BYTES, VERSION, FrameKind, pack
from services.channel.messages import REPLIES, REQUESTS, Hello, Release, Welcome, encode
from tests.core.toy import ToyRunner, continuation
from tests.services.toy_engine import Replica, replicas, run_in_loop

CALLS = [
    encode(CallRequest(Commit("s", 1, 0, (1, 2, 3)), Propose(3)), 1),
    encode(CallRequest(Commit("s", 2, 3, (4,)), Verify((5, 6))), 2),
    encode(GenerateRequest("g", (1, 2), DecodingParams(Mode.LOSSLESS), Limits(8)), 3),
    encode(Release("s"), 4),
]
LONG = GenerateRequest("long", (1, 2), DecodingParams(Mode.AR), Limits(4000))
RID = 77
ENDS_WITHIN_S = 5.0

Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def _first(result: CallResult) -> int:
    assert isinstance(result.answer, Proposal)
    return result.answer.tokens[0]


def _hello(replica: Replica) -> bytes:
    return encode(Hello(VERSION, replica.server.token), 0)


@contextlib.asynccontextmanager
async def _watched() -> AsyncIterator[tuple[Replica, Dial]]:
    """A replica, and a way to dial it. At the end another peer is served as ever and no page is missing."""
    async with replicas() as (replica,):
        bystander = await Channel.connect(replica.endpoint)
        writers: list[asyncio.StreamWriter] = []

        async def dial() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(replica.endpoint.host, replica.endpoint.port)
            writers.append(writer)
            return reader, writer

        yield replica, dial
        request = GenerateRequest("bystander", (3, 4), DecodingParams(Mode.AR), Limits(5))
        tokens = [token async for event in bystander.generate(request) for token in getattr(event, "tokens", ())]
        assert tokens == continuation((3, 4), 5)
        for writer in writers:
            writer.close()
        assert replica.engine.alive
        assert await replica.idle()
        await _until(lambda: len(replica.server.connections) == 1)
        assert replica.server.owners.keys() <= {"bystander"}  # whose lease would end it


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(ENDS_WITHIN_S):
        while not condition():
            await asyncio.sleep(0.01)


async def _closed(reader: asyncio.StreamReader) -> None:
    """Wait until the peer has hung up."""
    with contextlib.suppress(ConnectionResetError):
        await asyncio.wait_for(reader.read(), ENDS_WITHIN_S)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Frames, in part cut, changed or in a wrong order, with noise between them."""
    parts = draw(st.lists(st.sampled_from(CALLS) | st.binary(max_size=40) | _frames(), max_size=6))
    data = bytearray(b"".join(parts))
    for place in draw(st.lists(st.integers(0, max(0, len(data) - 1)), max_size=3)):
        if data:
            data[place] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))])


def _frames() -> st.SearchStrategy[bytes]:
    kinds = st.sampled_from([int(kind) for kind in FrameKind])
    return st.builds(
        lambda kind, rid, body: HEADER.pack(len(body), VERSION, kind, rid) + body,
        kinds,
        st.integers(0, 2**32 - 1),
        st.binary(max_size=60),
    )


@given(hostile=st.lists(st.tuples(st.booleans(), streams()), min_size=1, max_size=4))
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
def test_whatever_peers_send(hostile: Sequence[tuple[bool, bytes]]) -> None:
    async def run() -> None:
        async with _watched() as (replica, dial):
            for greeted, data in hostile:
                _, writer = await dial()
                writer.write((_hello(replica) if greeted else b"") + data)
                with contextlib.suppress(ConnectionError):
                    await writer.drain()

    run_in_loop(run())


def test_a_frame_too_large_closes_a_greeted_connection_before_its_body_comes() -> None:
    async def run() -> None:
        async with _watched() as (replica, dial):
            reader, writer = await dial()
            writer.write(_hello(replica) + HEADER.pack(MAX_BODY_BYTES + 1, VERSION, FrameKind.GENERATE, 7))
            await _closed(reader)

    run_in_loop(run())


def test_half_a_call_holds_nothing_and_its_other_half_completes_it() -> None:
    async def run() -> None:
        async with _watched() as (replica, dial):
            reader, writer = await dial()
            writer.write(_hello(replica) + CALLS[0][:15])
            welcome = len(encode(Welcome(), 0))
            await asyncio.wait_for(reader.readexactly(welcome), ENDS_WITHIN_S)
            assert replica.engine.stats().sessions == 0
            writer.write(CALLS[0][15:])
            assert await asyncio.wait_for(reader.read(1), ENDS_WITHIN_S)
            assert replica.engine.stats().sessions == 1

    run_in_loop(run())


def test_a_recorded_connection_played_again_changes_nothing() -> None:
    """Without the token it is refused; with it, old cycles are: the session of today keeps its tokens."""

    async def run() -> None:
        async with _watched() as (replica, dial):
            channel = await Channel.connect(replica.endpoint)
            first = CallRequest(Commit("s", 1, 0, (7, 8, 9)), Propose(3))
            second = CallRequest(Commit("s", 2, 3, (1,)), Propose(3))
            await channel.submit(first)
            before = await channel.submit(second)
            for token in ("0" * 32, replica.server.token):
                reader, writer = await dial()
                writer.write(encode(Hello(VERSION, token), 0) + encode(first, 1) + encode(first, 1))
                if token == replica.server.token:
                    await asyncio.wait_for(reader.readexactly(HEADER.size + 1), ENDS_WITHIN_S)
                else:
                    await _closed(reader)
            again = await channel.submit(second)
            assert _first(again) == _first(before) == ToyRunner.next_token((7, 8, 9, 1))
            channel.close()

    run_in_loop(run())


def test_who_says_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_server, "HELLO_TIMEOUT_S", 0.05)

    async def run() -> None:
        async with _watched() as (_, dial):
            readers = [(await dial())[0] for _ in range(50)]
            await asyncio.gather(*map(_closed, readers))

    run_in_loop(run())


BAD_CALLS: dict[str, bytes] = {
    **{f"no {kind.name.lower()}": pack(kind, RID, b"\xc1") for kind in sorted(REQUESTS)},
    "a call of another kind": pack(FrameKind.FUSE, RID, CALLS[0][HEADER.size :]),
    "negative id": encode(CallRequest(Commit("bad", 1, 0, (-1,)), Propose(3)), RID),
    "no block": encode(CallRequest(Commit("bad", 1, 0, (1,)), Propose(0)), RID),
    "branch outside its block": encode(CallRequest(Commit("bad", 1, 0, (1,)), Fuse((2,), (Branch(2, 1),))), RID),
    "no tokens to come": encode(GenerateRequest("bad", (1,), DecodingParams(Mode.AR), Limits(0)), RID),
    "cannot be computed": encode(
        CallRequest(Commit("bad", 1, 0, (1,)), Propose(3), sampling=SamplingParams(1, temperature=math.nan)), RID
    ),
}


@pytest.mark.parametrize("bad", BAD_CALLS.values(), ids=BAD_CALLS.keys())
def test_a_call_that_means_nothing_is_refused_and_the_connections_other_sessions_go_on(bad: bytes) -> None:
    async def run() -> None:
        async with _watched() as (replica, _):
            channel = await Channel.connect(replica.endpoint)
            async with contextlib.aclosing(channel.generate(LONG)) as stream:
                await anext(stream)
                culprit = _Unary("bad", asyncio.get_running_loop())
                channel._pending[RID] = culprit  # in place of a Router with a bug
                assert channel._transport is not None
                channel._transport.write(bad)
                with pytest.raises(ProveError, match=r"(?i)frame"):
                    await asyncio.wait_for(culprit.future, ENDS_WITHIN_S)
                again = await channel.submit(CallRequest(Commit("bad", 1, 0, (7, 8)), Propose(2)))
                assert _first(again) == ToyRunner.next_token((7, 8))
                await anext(stream)
            channel.close()

    run_in_loop(run())


@pytest.mark.parametrize("kind", sorted(REPLIES))
def test_an_answer_that_means_nothing_fails_its_call_and_no_other(kind: FrameKind) -> None:
    async def run() -> None:
        async with _watched() as (replica, _):
            channel = await Channel.connect(replica.endpoint)
            one, other = channel.generate(LONG), channel.generate(replace(LONG, session="other"))
            await anext(one)
            await anext(other)
            for connection in replica.server.connections:
                assert connection._transport is not None
                connection._transport.write(pack(kind, 1, b"\xc1"))  # `one` was the first call
            with pytest.raises(MalformedBody):
                async for _ in one:
                    pass
            await anext(other)
            channel.close()

    run_in_loop(run())


@pytest.mark.parametrize("kind", sorted(set(FrameKind) - REQUESTS - {FrameKind.RELEASE, FrameKind.PING}))
def test_a_frame_that_no_router_sends_ends_the_connection(kind: FrameKind) -> None:
    async def run() -> None:
        async with _watched() as (replica, dial):
            reader, writer = await dial()
            writer.write(_hello(replica) + pack(kind, RID, b"\xc1"))
            await _closed(reader)

    run_in_loop(run())
