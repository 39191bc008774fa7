"""Looked-up drafts against a slow search of the context, and what is learnt of how often they are right."""

from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.lookup import LONGER, LONGEST, NO_REPEAT, SHORTEST, Lookup, Repeat, Repeats

tokens = st.lists(st.integers(0, 3), max_size=40)


def slowly(context: list[int], count: int) -> Repeat:
    end = len(context)
    for length in (LONGER, SHORTEST):
        for place in range(end - 1, length - 1, -1):
            if context[place - length : place] == context[end - length : end]:
                matches = [n for n in range(1, min(LONGEST, place) + 1) if context[place - n : place] == context[-n:]]
                return Repeat(tuple(context[place : place + count]), max(matches))
    return NO_REPEAT


@given(st.lists(tokens, max_size=5), st.integers(1, 6))
def test_it_finds_what_a_search_of_the_whole_context_finds(parts: list[list[int]], count: int) -> None:
    context: list[int] = []
    lookup = Lookup(context)
    for part in parts:
        context += part
        assert lookup.find(count) == slowly(context, count)
        assert lookup.find(count) == slowly(context, count), "asking changes nothing"


def test_beliefs_give_way_to_what_is_seen_and_come_back() -> None:
    repeats, repeat = Repeats(), Repeat((1, 2, 3), 3)
    believed = repeats.chances(repeat)
    assert len(believed) == 3
    assert all(0.4 < chance < 0.9 for chance in believed)
    for _ in range(300):
        repeats.learn(3, drafted=3, accepted=0)
    assert repeats.chances(repeat)[0] < 0.1
    assert repeats.chances(repeat)[1] == believed[1], "nobody got that far"
    assert repeats.chances(Repeat((1,), 4))[0] > 0.4, "another length"
    for _ in range(5000):
        repeats.learn(3, drafted=0, accepted=0)
    assert repeats.chances(repeat)[0] > 0.4
    for _ in range(300):
        repeats.learn(3, drafted=3, accepted=3)
    assert repeats.chances(repeat)[0] > 0.9
    assert repeats.chances(repeat)[2] > 0.9
    assert repeats.chances(NO_REPEAT) == []


def test_longer_matches_are_believed_more() -> None:
    firsts = [Repeats().chances(Repeat((1,), match))[0] for match in range(SHORTEST, LONGEST + 1)]
    assert firsts == sorted(firsts)
    assert firsts[-1] < 1
