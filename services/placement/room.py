"""Whether sessions fit into what replicas have left. Pure."""

import heapq
from collections.abc import Iterable

Room = tuple[int, int]
"""KV tokens that nobody has reserved on a replica, and how many more sessions it takes."""


def fits(rooms: Iterable[Room], pending: Iterable[int], asked: int, count: int) -> bool:
    """Whether `count` sessions of `asked` tokens each find a replica that takes them and has that much room.

    Sessions of `pending` tokens, which have no replica yet, take the roomiest first.
    """
    left = [(-tokens, -sessions) for tokens, sessions in rooms if sessions > 0]
    heapq.heapify(left)
    needed = [(tokens, False) for tokens in sorted(pending, reverse=True)] + [(asked, True)] * count
    for tokens, must_fit in needed:
        if not left or (must_fit and -left[0][0] < tokens):
            return False
        room, sessions = heapq.heappop(left)
        if sessions < -1:
            heapq.heappush(left, (room + tokens, sessions + 1))
    return True
