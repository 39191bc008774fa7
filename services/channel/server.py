"""The replica's end: authenticates connections, feeds the engine, answers from its thread's callbacks."""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Callable
from typing import Protocol

from prove_core.errors import ProveError
from prove_core.types import CallRequest, CallResult, Finished, GenerateRequest, Step
from services.channel.errors import ChannelClosed, MalformedBody, MalformedFrame
from services.channel.framing import MAX_BODY_BYTES, MAX_HELLO_BYTES, VERSION, Frame
from services.channel.messages import REQUESTS, Hello, Message, Ping, Pong, Release, Welcome, failure
from services.channel.protocol import Connection

logger = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 5.0
ROUTER_SILENCE_LIMIT_S = 60.0  # a Router pings every second or so; one that vanished must not hold pages for ever


class EngineLike(Protocol):
    """What the channel needs of `prove_core.engine.Engine`. Callbacks run on the engine's thread."""

    def call(self, request: CallRequest, done: Callable[[CallResult | ProveError], None]) -> None: ...

    def generate(self, request: GenerateRequest, emit: Callable[[Step | Finished | ProveError], None]) -> None: ...

    def release(self, session: str) -> None: ...


class ChannelServer:
    """Listens on one address for Routers that hold this replica's token."""

    def __init__(self, engine: EngineLike, router_silence_limit_s: float = ROUTER_SILENCE_LIMIT_S) -> None:
        self.engine = engine
        self.router_silence_limit_s = router_silence_limit_s
        self.token = secrets.token_hex(16)
        self.connections: set[ServerConnection] = set()
        self.owners: dict[str, ServerConnection] = {}  # session -> the connection that used it last
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int = 0) -> int:
        """Bind to `host` and return the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: ServerConnection(self, loop), host, port)
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def release(self, session: str) -> None:
        """Abort the session and free its pages."""
        if self.owners.pop(session, None) is not None:
            logger.debug("session released", extra={"session": session})
        self.engine.release(session)

    async def stop(self) -> None:
        """Stop listening and drop every connection (which releases their sessions)."""
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()


class ServerConnection(Connection):
    """One Router. Says nothing and does nothing until the peer has shown the token."""

    def __init__(self, server: ChannelServer, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, MAX_HELLO_BYTES, server.router_silence_limit_s)
        self._server = server
        self._greeted = False
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.connections.add(self)
        self._patience = self._loop.call_later(HELLO_TIMEOUT_S, self._give_up)

    def _give_up(self) -> None:
        if not self._greeted:
            self.close()

    def received(self, rid: int, message: Message) -> None:
        if not self._greeted:
            self._greet(rid, message)
        elif isinstance(message, Release):
            self._server.release(message.session)
        elif isinstance(message, Ping):
            self.send(rid, Pong())
        elif isinstance(message, CallRequest | GenerateRequest):
            try:
                self._submit(rid, message)
            except ProveError as error:
                self.send(rid, failure(error))
        else:
            raise MalformedFrame(f"a replica takes no {type(message).__name__}")

    def not_understood(self, frame: Frame, error: MalformedBody) -> None:
        if not self._greeted or frame.kind not in REQUESTS:
            raise error
        logger.warning("refused a call: %s", error)
        self.send(frame.rid, failure(error))

    def _submit(self, rid: int, message: CallRequest | GenerateRequest) -> None:
        if isinstance(message, CallRequest):
            self._own(message.commit.session)
            self._server.engine.call(message, lambda answer: self._answer(rid, answer))
        else:
            self._own(message.session)
            self._server.engine.generate(message, lambda event: self._answer(rid, event))

    def _own(self, session: str) -> None:
        if session not in self._server.owners:
            logger.debug("session opened", extra={"session": session})
        self._server.owners[session] = self

    def _greet(self, rid: int, message: Message) -> None:
        if not isinstance(message, Hello) or message.version != VERSION:
            raise MalformedFrame("the first frame must be a Hello of this protocol version")
        if not hmac.compare_digest(message.token.encode(), self._server.token.encode()):
            raise MalformedFrame("wrong token")
        self._greeted = True
        self.accept_bodies_of(MAX_BODY_BYTES)
        self.send(rid, Welcome())

    def _answer(self, rid: int, answer: CallResult | Step | Finished | ProveError) -> None:
        """Runs on the engine's thread."""
        message = failure(answer) if isinstance(answer, ProveError) else answer
        try:
            self._loop.call_soon_threadsafe(self.send, rid, message)
        except RuntimeError:  # the loop has ended: the process is on its way out and nobody listens
            self.closed = True

    def lost(self, error: ChannelClosed) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._server.connections.discard(self)
        owned = [session for session, owner in self._server.owners.items() if owner is self]
        for session in owned:
            self._server.release(session)
