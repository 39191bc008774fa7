"""Passes of several ranks: rank 0 sends what a pass consists of, and all run it."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from prove_core.errors import RanksLost
from prove_core.model.ranks import Ranks
from prove_core.model.window import PassOutput, PlaceholderGroup, Runner, SidePath, Window

_END = b""


class Follower(Protocol):
    """What a rank that does not lead needs of a model."""

    def follow(self, windows: Sequence[Window]) -> None:
        """Run a pass without reading what comes out."""
        ...


class _Rows(msgspec.Struct, frozen=True, array_like=True):
    """A window as it travels: what decides the pass's shape and its KV, not how tokens are chosen."""

    tokens: list[int]
    start: int
    pages: list[int]
    groups: list[tuple[int, int]]
    logits: int
    sides: list[tuple[int, tuple[int, ...]]]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_Rows])


def encode(windows: Sequence[Window]) -> bytes:
    """Windows as bytes, never empty."""
    return _encoder.encode(
        [
            _Rows(
                list(window.tokens),
                window.start,
                list(window.pages),
                [(group.after, group.count) for group in window.groups],
                window.logits,
                [(side.after, side.tokens) for side in window.sides],
            )
            for window in windows
        ]
    )


def decode(message: bytes) -> list[Window]:
    """The windows of `encode`: targets, floors and sampling are left out."""
    return [
        Window(
            rows.tokens,
            rows.start,
            rows.pages,
            tuple(PlaceholderGroup(*group) for group in rows.groups),
            rows.logits,
            sides=tuple(SidePath(*side) for side in rows.sides),
        )
        for rows in _decoder.decode(message)
    ]


class LeadingRunner:
    """Rank 0's runner: implements `Runner` over all ranks.

    A pass that fails on one rank may leave the others waiting for it, so whatever fails ends the group: that pass and
    all later ones raise RanksLost.
    """

    def __init__(self, inner: Runner, ranks: Ranks) -> None:
        self._inner = inner
        self._ranks = ranks
        self._lost: Exception | None = None

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """See `Runner.run`. Raises RanksLost."""
        try:
            if self._lost is not None:
                raise self._lost
            self._ranks.send(encode(windows))
            return self._inner.run(windows)
        except Exception as error:
            self._lost = error
            raise RanksLost(f"a pass of {self._ranks.size} ranks failed: {' '.join(str(error).split())}") from error

    def close(self) -> None:
        """Let the others end."""
        self._ranks.send(_END)


def follow(runner: Follower, ranks: Ranks) -> None:
    """Run the passes that rank 0 sends until it closes. Raises what a pass raises, RuntimeError if rank 0 is gone."""
    while (message := ranks.receive()) != _END:
        runner.follow(decode(message))
