"""Where a request comes from: its id, on its way from the client's header to the logs of every replica."""

import re
import time
import uuid
from contextvars import ContextVar
from dataclasses import dataclass

REQUEST_ID = re.compile(r"[A-Za-z0-9._:@=+-]{1,128}")

CURRENT_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request that a task of the Router works for."""


@dataclass(frozen=True, slots=True)
class Origin:
    """`arrived`: `time.perf_counter` when its head had been read. `traceparent`: W3C's, as the client sent it."""

    id: str
    arrived: float
    traceparent: str | None = None

    @classmethod
    def new(cls, id: str | None = None, traceparent: str | None = None) -> "Origin":
        """A request that arrives now, with an id of its own unless it brings one."""
        return cls(id or uuid.uuid4().hex, time.perf_counter(), traceparent)

    def session(self, completion: str, choice: int) -> str:
        """The session of one choice on any replica: unique, even where a client sends one id twice."""
        return f"{self.id}/{completion[-12:]}-{choice}"


def request_of(session: str) -> str:
    """The id of the request that a session belongs to."""
    return session.partition("/")[0]
