"""Errors of the way between a Router and its replicas. Never sent over it: they say that it is gone."""

from prove_core.errors import ProveError


class ChannelClosed(ProveError):
    """The connection to a replica is gone (it died, or refused the token); open another lease."""


class MalformedFrame(ProveError):
    """The peer sent bytes that are no frame of this protocol version; the connection is closed."""


class ReplicaUnavailable(ProveError):
    """No replica of a role could be had in time, or a session was lost again and again."""
