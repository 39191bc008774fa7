"""A channel between a client and a real engine over real sockets, with peers that misbehave."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from prove_core.errors import SessionLost, StaleCommit
from prove_core.types import (
    CallRequest,
    CallResult,
    Commit,
    DecodingParams,
    Finished,
    FinishReason,
    GenerateRequest,
    Limits,
    Mode,
    Proposal,
    Propose,
    Reading,
    Step,
    Verify,
)
from services.channel.client import Channel, ChannelPool, Endpoint
from services.channel.errors import ChannelClosed
from services.channel.framing import HEADER, MAX_HELLO_BYTES, VERSION, FrameKind
from services.channel.messages import Hello, encode
from tests.core.toy import ToyRunner, continuation
from tests.services.toy_engine import Replica, replicas, run_in_loop


async def _generate(channel: Channel, request: GenerateRequest) -> tuple[list[int], Finished]:
    tokens: list[int] = []
    async for event in channel.generate(request):
        if isinstance(event, Finished):
            return tokens, event
        tokens += event.tokens
    raise AssertionError("the stream ended without Finished")


def _request(session: str, prompt: tuple[int, ...], count: int, mode: Mode = Mode.AR) -> GenerateRequest:
    return GenerateRequest(session, prompt, DecodingParams(mode), Limits(count))


def _tokens(result: CallResult) -> tuple[int, ...]:
    assert isinstance(result.answer, Proposal)
    return result.answer.tokens


async def _bystander_works(replica: Replica, channel: Channel) -> None:
    tokens, _ = await _generate(channel, _request("bystander", (3, 4), 5))
    assert tokens == continuation((3, 4), 5)
    assert replica.engine.alive


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def test_calls_and_completions() -> None:
    async def run() -> None:
        async with replicas() as (replica,):
            channel = await Channel.connect(replica.endpoint)
            result = await channel.submit(CallRequest(Commit("s", 1, 0, (7, 8)), Propose(4)))
            assert isinstance(result.answer, Proposal)
            assert result.answer.tokens[0] == ToyRunner.next_token((7, 8))
            first = result.answer.tokens[0]
            read = await channel.submit(CallRequest(Commit("s", 2, 2, (first,)), Verify((5, 6))))
            assert isinstance(read.answer, Reading)
            contexts = [(7, 8, first), (7, 8, first, 5), (7, 8, first, 5, 6)]
            assert read.answer.argmax == tuple(ToyRunner.next_token(context) for context in contexts)
            for mode in (Mode.AR, Mode.LOSSLESS, Mode.FUSED):
                tokens, end = await _generate(channel, _request(f"g{mode}", (7, 8), 40, mode))
                assert tokens == continuation((7, 8), 40)
                assert end.reason is FinishReason.LENGTH

    run_in_loop(run())


def test_many_streams_share_one_connection() -> None:
    async def run() -> None:
        async with replicas() as (replica,):
            pool = ChannelPool()
            channels = await asyncio.gather(*(pool.get(replica.endpoint) for _ in range(20)))
            assert len({id(channel) for channel in channels}) == 1
            results = await asyncio.gather(
                *(_generate(channels[i], _request(f"s{i}", (i, i + 1), 30)) for i in range(20))
            )
            assert [tokens for tokens, _ in results] == [continuation((i, i + 1), 30) for i in range(20)]
            assert len(replica.server.connections) == 1
            await pool.close()

    run_in_loop(run())


def test_a_replayed_call_is_harmless_and_an_old_one_refused() -> None:
    async def run() -> None:
        async with replicas() as (replica,):
            channel = await Channel.connect(replica.endpoint)
            one = CallRequest(Commit("s", 1, 0, (7, 8, 9)), Propose(3))
            two = CallRequest(Commit("s", 2, 3, (1,)), Propose(3))
            first = await channel.submit(one)
            again = await channel.submit(one)
            assert _tokens(again)[:1] == _tokens(first)[:1]
            second = await channel.submit(two)
            assert _tokens(await channel.submit(two))[:1] == _tokens(second)[:1]
            with pytest.raises(StaleCommit):
                await channel.submit(one)

    run_in_loop(run())


def test_an_unknown_session_is_lost() -> None:
    async def run() -> None:
        async with replicas() as (replica,):
            channel = await Channel.connect(replica.endpoint)
            with pytest.raises(SessionLost):
                await channel.submit(CallRequest(Commit("s", 4, 3, (1,)), Propose(3)))

    run_in_loop(run())


HELLO_HEADER = HEADER.pack(10, VERSION, FrameKind.HELLO, 0)
BAD_STREAMS = {
    "garbage": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "wrong token": encode(Hello(VERSION, "no"), 0),
    "other version": encode(Hello(VERSION + 1, "no"), 0),
    "oversized": HEADER.pack(MAX_HELLO_BYTES + 1, VERSION, FrameKind.HELLO, 0),
    "broken body": HELLO_HEADER + b"\xc1" * 10,
    "call before hello": encode(CallRequest(Commit("s", 1, 0, (1,)), Propose(1)), 0),
}


@pytest.mark.parametrize("stream", BAD_STREAMS.values(), ids=BAD_STREAMS.keys())
def test_a_bad_peer_loses_its_connection_and_nothing_else(stream: bytes) -> None:
    async def run() -> None:
        async with replicas() as (replica,):
            channel = await Channel.connect(replica.endpoint)
            reader, writer = await asyncio.open_connection(replica.endpoint.host, replica.endpoint.port)
            writer.write(stream)
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 20) == b""
            writer.close()
            await _bystander_works(replica, channel)
            assert replica.engine.stats().sessions == 0

    run_in_loop(run())


def test_half_a_frame_waits_and_its_end_frees_the_connection() -> None:
    async def run() -> None:
        async with replicas() as (replica,):
            channel = await Channel.connect(replica.endpoint)
            _, writer = await asyncio.open_connection(replica.endpoint.host, replica.endpoint.port)
            whole = encode(Hello(VERSION, replica.endpoint.token), 0)
            writer.write(whole[: len(whole) // 2])
            await writer.drain()
            await _bystander_works(replica, channel)
            assert len(replica.server.connections) == 2
            writer.close()
            await _until(lambda: len(replica.server.connections) == 1)

    run_in_loop(run())


def test_a_greeted_peer_that_turns_bad_loses_its_sessions_only() -> None:
    async def run() -> None:
        async with replicas() as (replica,):
            good, bad = await Channel.connect(replica.endpoint), await Channel.connect(replica.endpoint)
            pending = bad.submit(CallRequest(Commit("bad", 1, 0, (1, 2)), Propose(2)))
            await pending
            bad._transport.write(b"\xff" * 64)  # type: ignore[union-attr]  # bytes that no method would send
            await _until(lambda: bad.closed)
            await _bystander_works(replica, good)
            assert await replica.idle()

    run_in_loop(run())


def test_a_wrong_token_or_nobody_is_a_clear_error() -> None:
    async def run() -> None:
        async with replicas() as (replica,):
            endpoint = replica.endpoint
            with pytest.raises(ChannelClosed):
                await Channel.connect(Endpoint(endpoint.host, endpoint.port, "wrong"))
        with pytest.raises(ChannelClosed, match="no replica answers"):
            await Channel.connect(endpoint)

    run_in_loop(run())


def test_a_dead_connection_fails_what_is_pending_and_the_pool_reconnects() -> None:
    async def run() -> None:
        async with replicas() as (replica,):
            pool = ChannelPool()
            channel = await pool.get(replica.endpoint)
            stream = channel.generate(_request("s", (1, 2), 4000))
            assert isinstance(await anext(stream), Step)
            for connection in list(replica.server.connections):
                connection.close()
            with pytest.raises(ChannelClosed):
                async for _ in stream:
                    pass
            with pytest.raises(ChannelClosed):
                channel.submit(CallRequest(Commit("t", 1, 0, (1,)), Propose(1)))
            assert await replica.idle()
            fresh = await pool.get(replica.endpoint)
            assert fresh is not channel
            await _bystander_works(replica, fresh)
            await pool.close()

    run_in_loop(run())


def test_leaving_a_stream_aborts_it_on_the_replica() -> None:
    async def run() -> None:
        async with replicas() as (replica,):
            channel = await Channel.connect(replica.endpoint)
            async with contextlib.aclosing(channel.generate(_request("s", (1, 2), 4000))) as stream:
                await anext(stream)
                assert replica.engine.stats().sessions == 1
            assert await replica.idle()
            passes = replica.engine.stats().passes
            await asyncio.sleep(0.05)
            assert replica.engine.stats().passes == passes < 3900

    run_in_loop(run())
