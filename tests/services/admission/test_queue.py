"""The order of waiting requests: bounded, first come first served among equals, and nobody waits for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.admission.queue import FairQueue, QueueFull, Ticket

MOST_TOKENS = 400
SIZES = st.integers(1, 100)
# an arrival of that size, or None: the next one starts
EVENTS = st.lists(SIZES | st.none(), max_size=200)


def _run(events: list[int | None]) -> tuple[list[tuple[Ticket[int], int]], list[tuple[Ticket[int], int]], int]:
    """Arrivals and admissions, each with the tokens admitted before it, and how many were refused."""
    queue: FairQueue[int] = FairQueue(1000, MOST_TOKENS)
    arrivals, admissions, admitted, refused = [], [], 0, 0
    for number, size in enumerate([*events, *[None] * len(events)]):
        if size is None:
            if (head := queue.head) is not None:
                queue.admit(head)
                admissions.append((head, admitted))
                admitted += head.tokens
            continue
        try:
            arrivals.append((queue.offer(number, size), admitted))
        except QueueFull:
            refused += 1
        assert 0 <= queue.tokens <= MOST_TOKENS
        assert queue.tokens == sum(t.tokens for t, _ in arrivals) - admitted
    assert len(queue) == 0
    return arrivals, admissions, refused


@given(EVENTS)
def test_everyone_who_waits_is_admitted_once(events: list[int | None]) -> None:
    arrivals, admissions, refused = _run(events)
    assert sorted(ticket.item for ticket, _ in arrivals) == sorted(ticket.item for ticket, _ in admissions)
    assert refused == sum(size is not None for size in events) - len(arrivals)


@given(EVENTS)
def test_nobody_starves(events: list[int | None]) -> None:
    arrivals, admissions, _ = _run(events)
    came = {ticket.item: before for ticket, before in arrivals}
    for ticket, before in admissions:
        waited = before - came[ticket.item]
        assert waited <= MOST_TOKENS + 100, "not even the whole queue and one more request"
        overtakers = [t for t, b in admissions if came[t.item] >= came[ticket.item] + ticket.tokens and b < before]
        assert all(t.item <= ticket.item for t in overtakers), "whoever comes that late comes after it"


@given(EVENTS)
def test_equals_start_in_the_order_they_came(events: list[int | None]) -> None:
    _, admissions, _ = _run(events)
    for size in {ticket.tokens for ticket, _ in admissions}:
        order = [ticket.item for ticket, _ in admissions if ticket.tokens == size]
        assert order == sorted(order)


def test_a_short_request_passes_long_ones_and_a_stream_of_short_ones_does_not_starve_a_long_one() -> None:
    queue: FairQueue[str] = FairQueue(100, 10_000)
    for index in range(3):
        queue.offer(f"long {index}", 1000)
    queue.offer("short", 10)
    order = []
    for index in range(300):
        head = queue.head
        assert head is not None
        order.append(head.item)
        queue.admit(head)
        queue.offer(f"newcomer {index}", 10)
    assert order[0] == "short"
    assert order.index("long 2") <= 2 + 1 + 1000 // 10


@given(st.lists(st.tuples(st.integers(-2, 2), SIZES), min_size=1, max_size=4))
def test_lower_priority_values_come_first(requests: list[tuple[int, int]]) -> None:
    queue: FairQueue[int] = FairQueue(100, 1000)
    for number, (priority, size) in enumerate(requests):
        queue.offer(number, size, priority)
    seen = []
    while (head := queue.head) is not None:
        queue.admit(head)
        seen.append(head.priority)
    assert seen == sorted(seen)


def test_bounds_count_requests_and_tokens_and_leaving_makes_room() -> None:
    queue: FairQueue[str] = FairQueue(2, 100)
    first = queue.offer("a", 60)
    with pytest.raises(QueueFull) as full:
        queue.offer("b", 70)
    assert full.value.excess == 30
    queue.offer("c", 40)
    with pytest.raises(QueueFull):
        queue.offer("d", 0)
    assert queue.remove(first)
    assert not queue.remove(first)
    assert (len(queue), queue.tokens) == (1, 40)
    queue.offer("e", 60)
