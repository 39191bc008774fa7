"""One framed connection, as both ends see it."""

import asyncio
import logging
import socket
from typing import cast

from services.channel.errors import ChannelClosed, Loss, MalformedBody, MalformedFrame
from services.channel.framing import Frame, FrameReader
from services.channel.heartbeat import Heartbeat
from services.channel.messages import Message, decode, encode

logger = logging.getLogger(__name__)


class Connection(asyncio.Protocol):
    """Splits the stream into messages for `received`. Broken framing, or silence, closes this connection only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_body_bytes: int, silence_limit_s: float) -> None:
        self._loop = loop
        self._reader = FrameReader(max_body_bytes)
        self._silence_limit_s = silence_limit_s
        self._transport: asyncio.Transport | None = None
        self._heartbeat: Heartbeat | None = None
        self._silent = False
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class is not a subclass
        sock: socket.socket = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._heartbeat = Heartbeat(self._loop, self._silence_limit_s, silent=self._give_up_on_peer, beat=self.beat)

    def data_received(self, data: bytes) -> None:
        if self._heartbeat is not None:
            self._heartbeat.heard()
        try:
            for frame in self._reader.feed(data):
                if self.closed:
                    return
                self._take(frame)
        except MalformedFrame as error:
            logger.warning("closing a channel: %s", error)
            self.close()

    def _take(self, frame: Frame) -> None:
        try:
            message = decode(frame)
        except MalformedBody as error:
            self.not_understood(frame, error)
        else:
            self.received(frame.rid, message)

    def not_understood(self, frame: Frame, error: MalformedBody) -> None:
        """Act on a frame whose body means nothing. Raises the error where that is nobody's in particular."""
        raise error

    def received(self, rid: int, message: Message) -> None:
        """Act on one message. Raises `MalformedFrame` for one that this end does not take."""
        raise NotImplementedError

    def send(self, rid: int, message: Message) -> None:
        """Queue one message; silently dropped once the connection is closed."""
        if self.closed or self._transport is None:
            return
        self._transport.write(encode(message, rid))

    def beat(self) -> None:
        """Called several times per silence limit."""

    def _give_up_on_peer(self) -> None:
        logger.warning("closing a channel: nothing heard for %g s", self._silence_limit_s)
        self._silent = True
        self.close()

    def accept_bodies_of(self, max_body_bytes: int) -> None:
        """Raise the size limit, once the peer is known."""
        self._reader.max_body_bytes = max_body_bytes

    def close(self) -> None:
        """Drop the connection without waiting for unsent data. Idempotent."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._silent:
            self.lost(ChannelClosed(f"nothing heard of the replica for {self._silence_limit_s:g} s", Loss.SILENCE))
        else:
            self.lost(ChannelClosed(f"the connection to the replica is closed{f' ({exc})' if exc else ''}"))

    def lost(self, error: ChannelClosed) -> None:
        """The connection is gone; called once."""
        raise NotImplementedError
