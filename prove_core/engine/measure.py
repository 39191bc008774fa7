"""Measuring what the passes of a runner cost, before it serves (for mode `auto`)."""

import time
from collections.abc import Callable

from prove_core.decoding.cost import PassCost, fitted
from prove_core.model.window import PlaceholderGroup, Runner, Window

SIZES = (1, 2, 4, 8, 16, 32, 64)
MIXED = (2, 4, 16, 64)  # with placeholders
MANY = 16  # windows of the pass that shows what a window costs
_PER_TOKEN = 3  # placeholders for one token in the passes that have some
_ROUNDS = 4  # of which the fastest counts: whatever else runs only slows a pass down
_BUDGET_S = 1.5  # after which nothing is measured again


def measure_passes(
    runner: Runner, pages: int, page_size: int, *, clock: Callable[[], float] = time.perf_counter
) -> PassCost:
    """Seconds of passes of each size with and without placeholders, run on the first of a free pool's `pages`.

    Sizes that the pool is too small for are left out. The KV written is garbage, in pages that nobody holds.
    """
    capacity = pages * page_size
    plain = [[_window(size, 0, page_size)] for size in SIZES if size == 1 or size <= capacity]
    mixed = [[_mixed(size, page_size)] for size in MIXED if size <= capacity]
    many = [_window(1, index, page_size) for index in range(min(MANY, pages))]
    passes = [*plain, *mixed, many]
    best = [float("inf")] * len(passes)
    for windows in passes:  # the first pass of a shape sets things up, as somebody's first request would
        runner.run(windows)
    begun = clock()
    for turn in range(_ROUNDS * len(passes)):
        if turn >= len(passes) and clock() - begun > _BUDGET_S:
            break
        index = turn % len(passes)
        before = clock()
        runner.run(passes[index])
        best[index] = min(best[index], clock() - before)
    rows = [(windows[0].rows, seconds) for windows, seconds in zip(plain, best, strict=False)]
    base = fitted(rows, [(1, 0.0)], 0.0)
    extra = [
        (window.placeholders, seconds - base.of_rows(window.rows))
        for (window,), seconds in zip(mixed, best[len(plain) :], strict=False)
    ]
    window = (best[-1] - base.of_rows(len(many))) / (len(many) - 1) if len(many) > 1 else 0.0
    return fitted(rows, extra or [(1, 0.0)], window)


def _window(tokens: int, index: int, page_size: int) -> Window:
    """The window number `index`: tokens of a new sequence, all with outputs."""
    count = -(-tokens // page_size)
    return Window([0] * tokens, 0, range(index * count, (index + 1) * count), logits=tokens)


def _mixed(rows: int, page_size: int) -> Window:
    """Tokens to verify with placeholders behind each, as a fused pass has them."""
    tokens = max(1, rows // (1 + _PER_TOKEN))
    share, over = divmod(rows - tokens, tokens)
    groups = tuple(PlaceholderGroup(index, share + (index < over)) for index in range(tokens))
    return Window([0] * tokens, 0, range(-(-rows // page_size)), groups, logits=tokens, targets=(0,) * (tokens - 1))
