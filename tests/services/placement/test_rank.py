"""Where sessions go, and when they move."""

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from services.placement.rank import SESSION_ROWS, Standing, cost, ranked, worth_moving
from services.placement.room import Room, fits

STANDINGS = st.builds(
    Standing,
    replica=st.just("r"),
    slowness=st.floats(0.2, 8),
    queued_rows=st.integers(0, 5000),
    sessions=st.integers(0, 200),
    room=st.integers(-5000, 50_000),
    matched=st.integers(0, 2000),
)
TOKENS = st.integers(1, 4000)


def test_the_idle_the_fast_the_roomy_and_the_one_that_knows_the_prompt_come_first() -> None:
    plain = Standing("plain", sessions=4, queued_rows=100, room=2000)
    better = {
        "idle": replace(plain, sessions=0),
        "fast": replace(plain, slowness=0.5),
        "unqueued": replace(plain, queued_rows=0),
        "knows": replace(plain, matched=256),
    }
    for name, standing in better.items():
        assert ranked([plain, replace(standing, replica=name)], 1000, 300)[0] == name
    full = replace(plain, replica="full", room=100)
    assert ranked([full, plain], 1000, 300)[0] == "plain"


def test_a_known_prompt_does_not_pile_everything_on_one_replica() -> None:
    """A long system prompt that all share: once the replica that has it is busy enough, another reads it too."""
    sessions: Counter[str] = Counter()
    known: set[str] = set()
    for _ in range(60):
        names = ("a", "b", "c")
        standings = [Standing(n, sessions=sessions[n], matched=500 if n in known else 0) for n in names]
        best = ranked(standings, 700, 520)[0]
        sessions[best] += 1
        known.add(best)
    assert min(sessions.values()) >= 10


def test_a_replica_twice_as_slow_gets_half_as_many() -> None:
    sessions: Counter[str] = Counter()
    for _ in range(90):
        standings = [
            Standing("slow", slowness=2, sessions=sessions["slow"]),
            Standing("fast", sessions=sessions["fast"]),
        ]
        sessions[ranked(standings, 100, 50)[0]] += 1
    assert 27 <= sessions["slow"] <= 33


@given(STANDINGS, TOKENS, TOKENS)
def test_more_of_anything_bad_never_makes_a_place_better(here: Standing, tokens: int, prompt: int) -> None:
    before = cost(here, tokens, prompt)
    for worse in (
        replace(here, slowness=here.slowness * 1.1),
        replace(here, queued_rows=here.queued_rows + 1),
        replace(here, sessions=here.sessions + 1),
        replace(here, room=here.room - 1),
    ):
        assert cost(worse, tokens, prompt) >= before


@given(STANDINGS, STANDINGS, TOKENS)
def test_what_has_moved_does_not_move_back(here: Standing, there: Standing, tokens: int) -> None:
    here = replace(here, sessions=here.sessions + 1)
    if worth_moving(here, there, tokens):
        left = replace(here, sessions=here.sessions - 1, room=here.room + tokens)
        joined = replace(there, sessions=there.sessions + 1, room=there.room - tokens)
        assert not worth_moving(joined, left, tokens)


@given(st.integers(1, 8), TOKENS)
def test_a_move_must_be_clearly_worth_reading_everything_anew(sessions: int, tokens: int) -> None:
    here, idle = Standing("here", sessions=sessions), Standing("idle")
    assert worth_moving(here, idle, tokens) == (SESSION_ROWS * sessions > 2 * (tokens + SESSION_ROWS))


def test_nothing_moves_to_where_it_has_no_room() -> None:
    assert not worth_moving(Standing("here", sessions=100), Standing("there", room=99), 100)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 4)), min_size=1, max_size=4),
    st.lists(st.integers(1, 20), max_size=3),
    st.integers(1, 30),
    st.integers(1, 4),
)
def test_what_fits_has_a_place_for_each(rooms: list[Room], pending: list[int], asked: int, count: int) -> None:
    places = sum(min(tokens // asked, sessions) for tokens, sessions in rooms)
    if fits(rooms, pending, asked, count):
        assert places >= count
        assert sum(sessions for _, sessions in rooms) >= count + len(pending)
        assert fits(rooms, pending, asked, count - 1)
        assert fits(rooms, [], asked, count)
    assert fits(rooms, [], asked, count) == (count <= places)
