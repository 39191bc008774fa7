"""The Router's end: one connection per replica, shared by all of the Router's sessions there."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextvars import Context
from dataclasses import dataclass

from prove_core.types import CallRequest, CallResult, Finished, GenerateRequest, Step
from services.channel.errors import ChannelClosed, MalformedBody, MalformedFrame
from services.channel.framing import MAX_BODY_BYTES, VERSION, Frame
from services.channel.messages import REPLIES, Failure, Hello, Message, Ping, Pong, Release, Welcome, to_error
from services.channel.protocol import Connection

logger = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
SILENCE_LIMIT_S = 5.0

Reply = CallResult | Step | Finished | BaseException


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a replica listens, and the token that it takes."""

    host: str
    port: int
    token: str


class _Unary:
    """Waits for one answer."""

    def __init__(self, session: str, loop: asyncio.AbstractEventLoop) -> None:
        self.session = session
        self.future: asyncio.Future[CallResult] = loop.create_future()

    def put(self, reply: Reply) -> bool:
        if self.future.done():
            return True
        if isinstance(reply, CallResult):
            self.future.set_result(reply)
        elif isinstance(reply, BaseException):
            self.future.set_exception(reply)
        else:
            self.future.set_exception(ChannelClosed(f"a call was answered with {type(reply).__name__}"))
        return True


class _Stream:
    """Waits for many, until `Finished` or an error."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.queue: asyncio.Queue[Reply] = asyncio.Queue()

    def put(self, reply: Reply) -> bool:
        self.queue.put_nowait(reply)
        return isinstance(reply, Finished | BaseException)


class Channel(Connection):
    """A greeted connection to one replica. Every call fails with `ChannelClosed` once it is gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, silence_limit_s: float) -> None:
        super().__init__(loop, MAX_BODY_BYTES, silence_limit_s)
        self._pending: dict[int, _Unary | _Stream] = {}
        self._last_rid = 0
        self._welcome: asyncio.Future[None] = loop.create_future()

    @classmethod
    async def connect(cls, endpoint: Endpoint, silence_limit_s: float = SILENCE_LIMIT_S) -> "Channel":
        """Connect and greet. Raises `ChannelClosed` when nobody listens, or the token is refused."""
        loop = asyncio.get_running_loop()
        channel = cls(loop, silence_limit_s)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await loop.create_connection(lambda: channel, endpoint.host, endpoint.port)
                channel.send(0, Hello(VERSION, endpoint.token))
                await channel._welcome
        except (OSError, TimeoutError) as error:
            channel.close()
            raise ChannelClosed(f"no replica answers at {endpoint.host}:{endpoint.port}: {error!r}") from error
        return channel

    def received(self, rid: int, message: Message) -> None:
        if isinstance(message, Welcome):
            if not self._welcome.done():
                self._welcome.set_result(None)
        elif isinstance(message, CallResult | Step | Finished):
            self._deliver(rid, message)
        elif isinstance(message, Failure):
            self._deliver(rid, to_error(message))
        elif isinstance(message, Pong):
            return  # that it was heard is all there is to it
        else:
            raise MalformedFrame(f"a router takes no {type(message).__name__}")

    def not_understood(self, frame: Frame, error: MalformedBody) -> None:
        if frame.kind not in REPLIES:
            raise error
        logger.warning("an answer was not understood: %s", error)
        self._deliver(frame.rid, error)

    def beat(self) -> None:
        self.send(0, Ping())

    def _deliver(self, rid: int, reply: Reply) -> None:
        waiter = self._pending.get(rid)
        if waiter is not None and waiter.put(reply):
            self._pending.pop(rid, None)

    def _start(self, waiter: _Unary | _Stream, message: CallRequest | GenerateRequest) -> int:
        if self.closed:
            raise ChannelClosed("the connection to the replica is closed")
        self._last_rid = rid = (self._last_rid + 1) & 0xFFFFFFFF
        self._pending[rid] = waiter
        self.send(rid, message)
        return rid

    @property
    def waiting(self) -> int:
        """Calls and completions under way."""
        return len(self._pending)

    def submit(self, request: CallRequest) -> asyncio.Future[CallResult]:
        """Send one call now. The future holds its answer, the engine's error, or `ChannelClosed`."""
        waiter = _Unary(request.commit.session, self._loop)
        rid = self._start(waiter, request)
        # a caller who gives up releases the session, and a released session answers nothing
        waiter.future.add_done_callback(lambda _: self._pending.pop(rid, None))
        return waiter.future

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Step | Finished]:
        """Stream a completion up to `Finished`. Closing the iterator early aborts it on the replica."""
        waiter = _Stream(request.session)
        rid = self._start(waiter, request)
        try:
            while True:
                reply = await waiter.queue.get()
                if isinstance(reply, BaseException):
                    raise reply
                assert isinstance(reply, Step | Finished)
                yield reply
                if isinstance(reply, Finished):
                    return
        finally:
            if self._pending.pop(rid, None) is not None:
                self.release(request.session)

    def release(self, session: str) -> None:
        """Abort the session on the replica and free its pages."""
        self.send(0, Release(session))

    def abandon(self, session: str, error: ChannelClosed) -> None:
        """Fail whatever still waits on `session`: its lease has ended."""
        for rid, waiter in list(self._pending.items()):
            if waiter.session == session:
                self._deliver(rid, error)

    def lost(self, error: ChannelClosed) -> None:
        if not self._welcome.done():
            self._welcome.set_exception(error)
        for rid in list(self._pending):
            self._deliver(rid, error)


class ChannelPool:
    """The connections of one Router, by endpoint. A dead one is replaced on the next use."""

    def __init__(self, silence_limit_s: float = SILENCE_LIMIT_S) -> None:
        self._silence_limit_s = silence_limit_s
        self._channels: dict[Endpoint, asyncio.Task[Channel]] = {}

    async def get(self, endpoint: Endpoint) -> Channel:
        """The live connection to `endpoint`, made when there is none. Raises `ChannelClosed`."""
        task = self._channels.get(endpoint)
        if task is None or (task.done() and (task.cancelled() or task.exception() or task.result().closed)):
            self._forget_closed()
            connecting = Channel.connect(endpoint, self._silence_limit_s)
            # In a context of its own: what the connection logs later is not about the request that happened to open it.
            task = self._channels[endpoint] = asyncio.create_task(connecting, context=Context())
        return await asyncio.shield(task)  # other sessions wait on it too

    def _forget_closed(self) -> None:
        for endpoint, task in list(self._channels.items()):
            if task.done() and (task.cancelled() or task.exception() or task.result().closed):
                del self._channels[endpoint]

    async def close(self) -> None:
        """Close every connection."""
        for task in self._channels.values():
            task.cancel()
            if task.done() and not task.cancelled() and not task.exception():
                task.result().close()
        self._channels.clear()
