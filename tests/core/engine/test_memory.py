"""Sizes of KV pools: arithmetic, and what is refused or warned of."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.memory import SHORT_SESSION, Budget, bytes_per_token, check_pool, pass_bytes, pool_tokens
from prove_core.engine.sizing import with_tokens
from prove_core.errors import TooLittleMemory
from prove_core.kv.storage import KVStorage, LayerShape

GIB = 2**30


@given(
    total=st.integers(1, 200 * GIB),
    fraction=st.floats(0.01, 1),
    taken=st.integers(0, 100 * GIB),
    reserved=st.integers(0, 10 * GIB),
    per_token=st.integers(1, 1 << 20),
    page_size=st.sampled_from([1, 4, 16]),
)
def test_the_pool_fills_the_budget_and_never_exceeds_it(
    total: int, fraction: float, taken: int, reserved: int, per_token: int, page_size: int
) -> None:
    budget = Budget(total, fraction, taken, reserved)
    page = per_token * page_size
    try:
        tokens = pool_tokens(budget, per_token, page_size)
    except TooLittleMemory:
        assert budget.left < 2 * page
        return
    assert tokens % page_size == 0
    assert tokens * per_token + page <= budget.left < tokens * per_token + 2 * page


def test_a_pool_of_the_computed_size_takes_the_bytes_it_was_computed_for() -> None:
    layers = [LayerShape(2, 8, 8), LayerShape(1, 16, 4)]
    per_token = bytes_per_token(layers, torch.bfloat16)
    budget = Budget(1 << 20, 0.5, taken=100_000, reserved=50_000)
    tokens = pool_tokens(budget, per_token, 4)
    storage = KVStorage(layers, pages=tokens // 4, page_size=4, dtype=torch.bfloat16, device="cpu")
    assert budget.left - 4 * per_token < storage.bytes <= budget.left


def test_a_small_budget_is_refused_with_its_numbers() -> None:
    with pytest.raises(TooLittleMemory, match=r"0\.32 of 80\.00 GiB is 25\.60 GiB, weights take 28\.00 GiB") as caught:
        pool_tokens(Budget(80 * GIB, 0.32, taken=28 * GIB, reserved=GIB), 1024, 16)
    assert "memory_fraction" in str(caught.value)


def test_two_engines_within_their_fractions_fit_one_device() -> None:
    total = 139 * GIB
    reserved = pass_bytes(256, 152_064, 5120, 27_648)
    proposer = Budget(total, 0.55, taken=64 * GIB, reserved=reserved)
    verifier = Budget(total, 0.32, taken=15 * GIB, reserved=reserved)
    sizes = [pool_tokens(proposer, 64 * 8 * 256 * 2, 16), pool_tokens(verifier, 28 * 4 * 256 * 2, 16)]
    used = sizes[0] * 64 * 8 * 256 * 2 + sizes[1] * 28 * 4 * 256 * 2 + 79 * GIB + 2 * reserved
    assert used <= 0.87 * total


def test_a_pool_too_small_for_one_session_is_refused_naming_numbers_and_keys() -> None:
    with pytest.raises(TooLittleMemory) as caught:
        check_pool(4096, 8192, 4, "verifier")
    message = str(caught.value)
    for part in ("4096 tokens", "8192 tokens", "verifier.engine.cache.tokens", "verifier.engine.model.max_length"):
        assert part in message


def test_a_pool_that_will_starve_is_warned_of_with_the_numbers() -> None:
    warning = check_pool(8192, 8192, 256, "proposer")
    assert warning is not None
    for part in ("8192 tokens", "max_ongoing_requests 256", "32 tokens", f"to {256 * SHORT_SESSION}", "to 64"):
        assert part in warning


@given(st.integers(1, 1 << 20), st.integers(1, 1 << 17), st.integers(1, 1024))
def test_the_advice_of_a_warning_helps(tokens: int, context: int, sessions: int) -> None:
    try:
        warning = check_pool(tokens, context, sessions, "proposer")
    except TooLittleMemory:
        assert tokens < context
        return
    short = min(SHORT_SESSION, context)
    assert (warning is None) == (tokens >= sessions * short)
    assert check_pool(max(tokens, sessions * short), context, sessions, "proposer") is None
    assert check_pool(tokens, context, max(1, tokens // short), "proposer") is None


def test_the_defaults_do_not_warn() -> None:
    assert check_pool(CacheConfig().pages * CacheConfig().page_size, 8192, 256, "proposer") is None


def test_a_size_left_open_must_be_found_before_it_is_used() -> None:
    config = EngineConfig(model=ModelConfig(checkpoint="x"), cache=CacheConfig(tokens="auto"))
    with pytest.raises(AssertionError, match="not known"):
        _ = config.cache.pages
    assert with_tokens(config, 100).cache.pages == 7
