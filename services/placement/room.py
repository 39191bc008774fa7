"""Whether sessions fit into what replicas have left. Pure."""

import heapq
from collections.abc import Iterable


def fits(rooms: Iterable[int], pending: Iterable[int], asked: int, count: int) -> bool:
    """Whether `count` sessions of `asked` tokens each find a replica with that much room.

    `rooms`: tokens that nobody has reserved, by replica. Sessions of `pending` tokens, which have no replica yet, take
    the roomiest first.
    """
    left = [-room for room in rooms]
    heapq.heapify(left)
    if not left:
        return False
    for tokens in sorted(pending, reverse=True):
        heapq.heapreplace(left, left[0] + tokens)
    for _ in range(count):
        if -left[0] < asked:
            return False
        heapq.heapreplace(left, left[0] + asked)
    return True
