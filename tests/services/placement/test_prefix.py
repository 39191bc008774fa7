"""What the Router remembers of prompts agrees with what a pool's prefix cache would find."""

from hypothesis import given
from hypothesis import strategies as st

from prove_core.kv.pool import PagePool
from prove_core.kv.sequence import Sequence
from prove_core.types import Commit
from services.placement.prefix import PrefixMemory, page_keys

PAGE = 4
PROMPTS = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=20).map(tuple), min_size=1, max_size=6)


@given(PROMPTS)
def test_matches_are_those_of_the_prefix_cache(prompts: list[tuple[int, ...]]) -> None:
    pool, memory = PagePool(200, PAGE), PrefixMemory()
    for number, prompt in enumerate(prompts):
        keys = page_keys(prompt, PAGE)
        sequence = Sequence(pool)
        sequence.apply(Commit(str(number), 0, 0, prompt))
        sequence.attach_prefix()
        assert memory.matched("r", keys) * PAGE == len(sequence.cached)
        assert sequence.reserve(len(prompt))
        sequence.fed(prompt[len(sequence.cached) : -1])
        memory.remember("r", keys, pool.pages)
        sequence.release()


def test_only_as_many_pages_as_the_pool_has_and_the_first_ones_last() -> None:
    memory = PrefixMemory()
    old, new = page_keys(tuple(range(41)), PAGE), page_keys(tuple(range(100, 125)), PAGE)
    memory.remember("r", old, 12)
    memory.remember("r", new, 12)
    assert memory.matched("r", new) == len(new) == 6
    assert memory.matched("r", old) == 6
    memory.keep({"other"})
    assert memory.matched("r", new) == 0
