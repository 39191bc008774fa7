"""Where the ranks of one model meet. (Apart from `ranks`, so that it can be known before torch is imported.)"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank stands: `rank` of `size`, its own address, and that of the store at which all of them meet."""

    rank: int
    size: int
    address: str
    store_address: str
    store_port: int
