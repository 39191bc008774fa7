"""Frames: `length u32 | version u8 | kind u8 | request id u32 | body`, in network byte order."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from services.channel.errors import MalformedFrame

VERSION = 1
HEADER = struct.Struct("!IBBI")
MAX_BODY_BYTES = 8 << 20  # a context of a million tokens, five bytes each, with room
MAX_HELLO_BYTES = 1024  # what a peer may make us buffer before it has shown the token


class FrameKind(IntEnum):
    """What a frame's body holds; `services.channel.messages` maps each kind to its type."""

    HELLO = 1
    WELCOME = 2
    PROPOSE = 3
    VERIFY = 4
    DRAFT = 5
    GENERATE = 6
    RELEASE = 7
    PROPOSAL = 8
    READING = 9
    DRAFTED = 10
    STEP = 11
    FINISHED = 12
    FAILURE = 13
    FUSE = 14
    FUSED = 15
    CONTINUE = 16
    CONTINUED = 17
    PING = 18
    PONG = 19


_KINDS = {int(kind): kind for kind in FrameKind}


@dataclass(frozen=True, slots=True)
class Frame:
    """One complete frame. `rid` ties answers to their request within a connection."""

    kind: FrameKind
    rid: int
    body: bytes


def pack(kind: FrameKind, rid: int, body: bytes) -> bytes:
    """The bytes of one frame."""
    return HEADER.pack(len(body), VERSION, kind, rid) + body


class FrameReader:
    """Reassembles frames from arbitrary pieces of a byte stream."""

    def __init__(self, max_body_bytes: int) -> None:
        self.max_body_bytes = max_body_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield every frame that `data` completes. Raises `MalformedFrame`, which ends the stream."""
        buffer = self._buffer
        buffer += data
        while len(buffer) >= HEADER.size:
            length, version, kind, rid = HEADER.unpack_from(buffer)
            if version != VERSION:
                raise MalformedFrame(f"frame of protocol version {version}; this side speaks {VERSION}")
            if kind not in _KINDS:
                raise MalformedFrame(f"frame of unknown kind {kind}")
            if length > self.max_body_bytes:
                raise MalformedFrame(f"frame of {length} bytes; at most {self.max_body_bytes} are taken")
            end = HEADER.size + length
            if len(buffer) < end:
                return
            body = bytes(buffer[HEADER.size : end])
            del buffer[:end]
            yield Frame(_KINDS[kind], rid, body)
