"""What a replica reports of itself to the Routers, and what a Router wishes for when it takes a place on one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Load:
    """A replica now. `capacity`, `reserved`: tokens its KV pool holds, and those that open leases expect to need.

    `passes`, `rows` and `pass_seconds` count since its start.
    """

    replica: str
    capacity: int
    reserved: int
    sessions: int
    queued_rows: int
    passes: int
    rows: int
    pass_seconds: float


@dataclass(frozen=True, slots=True)
class Wish:
    """Sent with a lease: replicas from the best on, and the KV tokens that the session will need, about."""

    order: tuple[str, ...] = ()
    tokens: int = 0


NO_WISH = Wish()
