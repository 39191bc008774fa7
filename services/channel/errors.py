"""Errors of the way between a Router and its replicas. Never sent over it: they say that it is gone."""

from enum import StrEnum

from prove_core.errors import ProveError


class Loss(StrEnum):
    """How a session was lost; also a label of metrics."""

    CONNECTION = "connection"  # closed, or none could be made: the replica's process or machine is gone
    SILENCE = "silence"  # nothing heard for too long
    LEASE = "lease"  # ended by Serve: the replica died or is to go
    ENGINE = "engine"  # the engine thread has ended
    PASS = "pass"  # a forward pass failed
    MOVED = "moved"  # given up by this Router, for a better place
    SESSION = "session"  # the replica runs and does not hold it


class ChannelClosed(ProveError):
    """The connection to a replica is gone (it died, or refused the token); open another lease."""

    def __init__(self, message: str, loss: Loss = Loss.CONNECTION) -> None:
        super().__init__(message)
        self.loss = loss


class MalformedFrame(ProveError):
    """The peer sent bytes that are no frame of this protocol version; the connection is closed."""


class MalformedBody(MalformedFrame):
    """A whole frame whose body means nothing. Those that follow can be read: only this one's sender is to blame."""


class ReplicaUnavailable(ProveError):
    """No replica of a role could be had in time, or a session was lost again and again."""


class VerifierUnavailable(ReplicaUnavailable):
    """It is the verifier that could not be had: the proposer could go on alone."""
