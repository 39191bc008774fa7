"""The pool's books balance whatever happens, and the prefix cache returns exactly what was published."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prove_core.errors import SessionLost, StaleCommit
from prove_core.kv.pool import ROOT, PagePool
from prove_core.kv.sequence import Sequence
from prove_core.types import Commit


def test_allocation_is_all_or_nothing() -> None:
    pool = PagePool(3, 4)
    taken = pool.allocate(2)
    assert taken is not None
    assert pool.allocate(2) is None
    assert pool.available == 1
    pool.release(taken)
    assert pool.available == 3


def test_a_leak_and_a_double_release_are_noticed() -> None:
    pool = PagePool(4, 4)
    pages = pool.allocate(2)
    assert pages is not None
    with pytest.raises(AssertionError):
        pool.check([])
    pool.check([pages])
    pool.release(pages)
    pool.release(pages[:1])
    with pytest.raises(AssertionError):
        pool.check([])


def test_match_stops_short_of_the_last_token_and_keeps_pages_alive() -> None:
    pool = PagePool(4, 2)
    pages = pool.allocate(2)
    assert pages is not None
    first = pool.publish(ROOT, (1, 2), pages[0])
    pool.publish(first, (3, 4), pages[1])
    pool.release(pages)
    assert [entry.page for entry in pool.match([1, 2, 3, 4])] == pages[:1]  # the last token must be run
    assert [entry.page for entry in pool.match([1, 2, 3, 4, 5])] == pages
    assert [entry.page for entry in pool.match([1, 2, 9, 9, 9])] == pages[:1]
    assert pool.match([3, 4, 5]) == []  # the same tokens after another parent are another prefix
    assert pool.available == 2
    assert pool.allocate(3) is None


def test_the_tail_of_an_idle_prefix_is_evicted_before_its_head() -> None:
    pool = PagePool(3, 2)
    pages = pool.allocate(3)
    assert pages is not None
    uid = ROOT
    for index, page in enumerate(pages):
        uid = pool.publish(uid, (index, index), page)
    pool.release(pages)
    assert pool.allocate(1) == pages[2:]
    assert len(pool.match([0, 0, 1, 1, 2, 2, 3])) == 2


def test_commits_are_idempotent_ordered_and_refused_when_they_build_on_nothing() -> None:
    sequence = Sequence(PagePool(4, 4))
    sequence.apply(Commit("s", 1, 0, (1, 2, 3)))
    sequence.apply(Commit("s", 2, 3, (4,)))
    sequence.apply(Commit("s", 2, 3, (4,)))
    assert sequence.tokens == [1, 2, 3, 4]
    with pytest.raises(StaleCommit):
        sequence.apply(Commit("s", 1, 0, (9,)))
    with pytest.raises(SessionLost):
        sequence.apply(Commit("s", 3, 5, (9,)))
    sequence.apply(Commit("s", 4, 2, (7,)))
    assert sequence.tokens == [1, 2, 7]


def test_what_was_left_for_the_next_pass_goes_with_the_tokens_that_it_is_behind() -> None:
    sequence = Sequence(PagePool(4, 4))
    sequence.apply(Commit("s", 1, 0, (1, 2, 3)))
    sequence.remnant = left = object()
    sequence.apply(Commit("s", 2, 3, (4,)))
    sequence.release()
    assert sequence.remnant is left, "it needs no KV"
    sequence.apply(Commit("s", 3, 3, (4,)))
    assert sequence.remnant is None


STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # which sequence
        st.sampled_from(["read", "read", "read", "replace", "release"]),
        st.integers(0, 5),  # block length
        st.integers(0, 6),  # how much of it is accepted
        st.integers(0, 1),  # which continuation
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(STEPS, st.integers(1, 4), st.integers(6, 20))
def test_random_commits_against_a_dense_oracle(
    steps: list[tuple[int, str, int, int, int]], size: int, pages: int
) -> None:
    """After any history the slots under `cached` hold exactly `cached`, and every page is accounted for."""
    pool = PagePool(pages, size)
    sequences = [Sequence(pool) for _ in range(3)]
    memory: dict[tuple[int, int], int] = {}
    cycle = 0
    for which, action, length, accept, flavour in steps:
        sequence = sequences[which]
        cycle += 1
        if not sequence.tokens:
            sequence.apply(Commit("s", cycle, 0, (7, 7, 7, 7, 7)))
        if action == "release":
            sequence.release()
        elif action == "replace":
            keep = min(accept, len(sequence.tokens))
            sequence.apply(Commit("s", cycle, keep, (8,) * length or (8,)))
        else:
            block = tuple(flavour * 10 + index % 2 for index in range(length))
            if not sequence.pages:
                sequence.attach_prefix()
            sequence.trim(len(sequence.tokens) - 1)
            start = len(sequence.cached)
            context = [*sequence.tokens, *block]
            if sequence.reserve(len(context)):
                for position in range(start, len(context)):
                    memory[sequence.pages[position // size], position % size] = context[position]
                sequence.fed(context[start:])
                accepted = min(accept, length)
                cycle += 1
                sequence.apply(Commit("s", cycle, len(sequence.tokens), (*block[:accepted], 9)))
        pool.check(each.pages for each in sequences)
        for each in sequences:
            slots = [memory[each.pages[p // size], p % size] for p in range(len(each.cached))]
            assert slots == list(each.cached) == each.tokens[: len(each.cached)]
    for sequence in sequences:
        sequence.release()
    pool.check([])
    assert pool.available == pages
