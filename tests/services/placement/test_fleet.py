"""A Router's view of replicas: what it books, where it places, and what it moves. Two toy replicas, no Ray."""

import asyncio
import time
from collections import Counter
from dataclasses import replace

import pytest

from services.channel.errors import ChannelClosed, Loss
from services.placement.booking import Booking
from services.placement.fleet import STAY_S, Fleet
from services.placement.load import NO_WISH, Load, Wish
from tests.services.toy_engine import Replica, ToyLease, ToyLessor, replicas, run_in_loop

PROMPT = tuple(range(64))


def _fleet(lessor: ToyLessor, most_sessions: int = 100) -> Fleet:
    return Fleet(lessor, lessor.loads, page_size=16, most_sessions=most_sessions)


def _book(fleet: Fleet, tokens: int = 100, prompt: tuple[int, ...] = PROMPT) -> Booking:
    bookings = fleet.book(tokens, prompt, 1, force=False)
    assert bookings is not None
    return bookings[0]


def _spread(lessor: ToyLessor) -> Counter[str]:
    return Counter(lease.at.name for lease in lessor.leases if not lease.closed)


def test_a_burst_is_spread_although_no_report_comes_in_between() -> None:
    async def run() -> None:
        async with replicas(2) as both:
            lessor = ToyLessor(both)
            fleet = _fleet(lessor)
            await fleet.refresh()
            bookings = [_book(fleet, prompt=(index, *PROMPT)) for index in range(20)]
            await asyncio.gather(*(booking.lease(str(index)) for index, booking in enumerate(bookings)))
            assert set(_spread(lessor).values()) == {10}

    run_in_loop(run())


def test_room_is_what_the_pools_hold_less_what_is_booked_and_what_others_hold() -> None:
    async def run() -> None:
        async with replicas(2, tokens=1000) as both:
            lessor = ToyLessor(both)
            other, fleet = _fleet(lessor), _fleet(lessor)
            capacity = both[0].engine.capacity
            await other.refresh()
            leases = [await _book(other, 400).lease("other")]
            await fleet.refresh()
            mine = [_book(fleet, 400) for _ in range(3)]
            assert fleet.book(400, PROMPT, 1, force=False) is None, f"four times 400 in twice {capacity}"
            assert fleet.book(capacity, PROMPT, 1, force=True) is not None
            mine[0].close()
            fleet.book(100, PROMPT, 1, force=False)
            leases[0].close()
            await fleet.refresh()
            for booking in mine:
                booking.close()
                booking.close()

    run_in_loop(run())


def test_full_replicas_take_no_more_sessions() -> None:
    async def run() -> None:
        async with replicas(2) as both:
            lessor = ToyLessor(both)
            fleet = _fleet(lessor, most_sessions=2)
            await fleet.refresh()
            for index in range(4):
                await _book(fleet, 1).lease(str(index))
            assert fleet.book(1, PROMPT, 1, force=False) is None

    run_in_loop(run())


def test_sessions_without_a_place_yet_count_as_sessions_too() -> None:
    """A queue that is let in at once books for all of it before the first lease is asked for."""

    async def run() -> None:
        async with replicas(2) as both:
            fleet = _fleet(ToyLessor(both), most_sessions=2)
            await fleet.refresh()
            assert fleet.book(1, PROMPT, 5, force=False) is None
            booked = [_book(fleet, 1) for _ in range(4)]
            assert fleet.book(1, PROMPT, 1, force=False) is None
            booked[0].close()
            assert fleet.book(1, PROMPT, 2, force=False) is None
            _book(fleet, 1)

    run_in_loop(run())


def test_a_chat_goes_back_to_where_its_prompt_is_cached() -> None:
    async def run() -> None:
        async with replicas(2) as both:
            lessor = ToyLessor(both)
            fleet = _fleet(lessor)
            await fleet.refresh()
            chats = {chat: tuple(range(chat, chat + 200)) for chat in (1000, 2000, 3000, 4000)}
            homes = {}
            for chat, prompt in chats.items():
                booking = _book(fleet, 300, prompt)
                lease = await booking.lease("first")
                homes[chat] = lease.replica
                lease.close()
                booking.close()
                await fleet.refresh()
            assert set(Counter(homes.values()).values()) == {2}, "prompts are shared out among equals"
            for chat, prompt in chats.items():
                booking = _book(fleet, 300, (*prompt, *range(50)))
                lease = await booking.lease("second")
                assert lease.replica == homes[chat]
                lease.close()
                booking.close()

    run_in_loop(run())


def test_a_session_that_is_lost_does_not_return_to_where_it_was_lost() -> None:
    async def run() -> None:
        async with replicas(2) as both:
            fleet = _fleet(ToyLessor(both))
            await fleet.refresh()
            booking = _book(fleet)
            lease = await booking.lease("s/1")
            lease.close()
            again = await booking.lease("s/2")
            assert again.replica != lease.replica
            lease.close()  # a late close of the old one leaves the new one alone
            assert booking.replica == again.replica

    run_in_loop(run())


def test_a_replica_that_refuses_is_the_last_choice_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with replicas(2) as both:
            lessor = ToyLessor(both)
            fleet = _fleet(lessor)
            await fleet.refresh()
            first, second = _book(fleet), _book(fleet)
            give = lessor.lease
            monkeypatch.setattr(lessor, "lease", _refuse)
            with pytest.raises(ChannelClosed):
                await first.lease("first")
            monkeypatch.setattr(lessor, "lease", give)
            for _ in range(5):
                assert fleet.wish(second).order[1] == first.avoid
            lessor.replicas = [replica for replica in both if replica.name == first.avoid]
            assert (await second.lease("second")).replica == first.avoid, "last, and still a choice"
            orders = [fleet.wish(_book(fleet)).order[0] for _ in range(5)]
            assert first.avoid in orders, "it has given a place again"

    run_in_loop(run())


@pytest.mark.parametrize("hangs", [True, False])
def test_a_replica_that_grants_nothing_has_refused_and_one_whose_caller_left_has_not(hangs: bool) -> None:
    class Hanging(ToyLessor):
        asked = asyncio.Event()

        async def lease(self, session: str, wish: Wish = NO_WISH) -> ToyLease:
            self.asked.set()
            await asyncio.Event().wait()
            raise AssertionError("it never comes")

    async def run() -> None:
        async with replicas(2) as both:
            lessor = Hanging(both)
            limit_s = 0.01 if hangs else 3600
            fleet = Fleet(lessor, lessor.loads, page_size=16, most_sessions=9, grant_limit_s=limit_s)
            await fleet.refresh()
            left, other = _book(fleet), _book(fleet)
            waiting = asyncio.create_task(left.lease("left"))
            await lessor.asked.wait()
            if hangs:
                with pytest.raises(ChannelClosed, match=r"no lease within 0\.01 s"):
                    await waiting
            else:
                waiting.cancel()
                await asyncio.wait([waiting])
            left.close()
            await fleet.refresh()
            assert (fleet.wish(other).order[-1] == left.avoid) == hangs

    run_in_loop(run())


async def _refuse(session: str, wish: Wish) -> ToyLease:
    raise ChannelClosed("not here")


def test_what_a_session_uses_beyond_the_expectation_is_booked_too() -> None:
    async def run() -> None:
        async with replicas(1, tokens=1000) as (replica,):
            fleet = _fleet(ToyLessor([replica]))
            await fleet.refresh()
            booking = _book(fleet, 100)
            await booking.lease("s")
            _book(fleet, 850).close()
            booking.grew(36)
            booking.grew(100)
            assert (booking.tokens, booking.wished) == (200, 100)
            await fleet.refresh()
            assert fleet.book(850, PROMPT, 1, force=False) is None
            assert fleet.book(800, PROMPT, 1, force=False) is not None

    run_in_loop(run())


def test_a_new_replica_gets_new_sessions_and_takes_over_some_old_ones() -> None:
    async def run() -> None:
        async with replicas(2) as (old, new):
            lessor = ToyLessor([old])
            fleet = _fleet(lessor)
            await fleet.refresh()
            leases = {}
            for index in range(30):
                booking = _book(fleet, 100, (index, *PROMPT))
                leases[booking] = await booking.lease(str(index))
            lessor.replicas.append(new)
            await fleet.refresh()
            fresh = await _book(fleet, 100, (99, *PROMPT)).lease("new")
            assert fresh.replica == new.name
            assert not any(lease.moved.is_set() for lease in leases.values()), "they have only just been placed"
            for booking in leases:
                booking.since = time.monotonic() - STAY_S
            for _ in range(30):
                await fleet.refresh()
                for booking, lease in list(leases.items()):
                    if lease.moved.is_set():
                        assert await asyncio.wait_for(lease.ended(), 5) is Loss.MOVED
                        lease.close()
                        leases[booking] = await booking.lease("moved")
            spread = _spread(lessor)
            assert 6 <= spread[new.name] <= 15
            assert sum(spread.values()) == 31

    run_in_loop(run())


def test_a_replica_whose_passes_take_twice_as_long_gets_fewer() -> None:
    async def run() -> None:
        async with replicas(2) as both:
            lessor = ToyLessor(both)
            passes = 0

            async def report() -> list[Load]:
                nonlocal passes
                passes += 10
                slow, fast = await lessor.loads()
                return [
                    replace(slow, passes=passes, rows=8 * passes, pass_seconds=0.04 * passes),
                    replace(fast, passes=passes, rows=8 * passes, pass_seconds=0.02 * passes),
                ]

            fleet = Fleet(lessor, report, page_size=16, most_sessions=100)
            for index in range(60):
                await fleet.refresh()
                if index >= 30:
                    await _book(fleet, 10, (index,)).lease(str(index))
            spread = _spread(lessor)
            assert 8 <= spread[both[0].name] <= 12
            assert sum(spread.values()) == 30

    run_in_loop(run())


def test_an_outage_is_known_and_what_was_known_before_still_bounds() -> None:
    async def run() -> None:
        async with replicas(1, tokens=1000) as (replica,):
            lessor = ToyLessor([replica])
            fleet = _fleet(lessor)
            assert fleet.book(10**6, PROMPT, 1, force=False) is not None, "nothing is known yet"
            await fleet.refresh()
            assert fleet.down_for(time.monotonic()) == 0.0
            lessor.replicas.clear()
            await fleet.refresh()
            assert fleet.down_for(time.monotonic() + 40) > 39
            assert fleet.book(2000, PROMPT, 1, force=False) is None
            lessor.replicas.append(replica)
            await fleet.refresh()
            assert fleet.down_for(time.monotonic()) == 0.0

    run_in_loop(run())


def test_a_failed_report_leaves_the_last_one_standing() -> None:
    async def run() -> None:
        async with replicas(1) as (replica,):
            reports = _Reports(replica)
            fleet = Fleet(reports.lessor, reports.report, page_size=16, most_sessions=9)
            called = asyncio.Event()
            watch = asyncio.create_task(fleet.watch(called.set))
            await asyncio.wait_for(called.wait(), 5)
            reports.fail = True
            called.clear()
            await asyncio.wait_for(called.wait(), 5)
            assert fleet.down_for(time.monotonic()) == 0.0
            assert fleet.wish(_book(fleet)).order == (replica.name,)
            watch.cancel()

    run_in_loop(run())


class _Reports:
    """Reports of one replica, until they fail."""

    def __init__(self, replica: Replica) -> None:
        self.lessor = ToyLessor([replica])
        self.fail = False

    async def report(self) -> list[Load]:
        if self.fail:
            raise TimeoutError
        return await self.lessor.loads()
