"""The way that verification takes through a block and alternatives to it. Pure functions over short sequences."""

from collections.abc import Iterable, Sequence
from itertools import repeat, takewhile

from prove_core.types import Alternatives, TokenIds


def leading(passes: Iterable[bool]) -> int:
    """How many there are before the first that is not so."""
    return sum(1 for _ in takewhile(bool, passes))


def match_length(block: Sequence[int], argmax: Sequence[int]) -> int:
    """Greedy acceptance: candidates that equal the verifying model's own argmax, up to the first that does not."""
    return leading(token == best for token, best in zip(block, argmax, strict=False))


def taken_path(
    block: TokenIds, argmax: Sequence[int], alternatives: Alternatives, behind: Sequence[TokenIds]
) -> tuple[TokenIds, int, int]:
    """Greedy acceptance of a block with alternatives: candidates, how many match, and the model's own token after them.

    Where the block first differs from `argmax`, an alternative that begins with the argmax in that place goes on for as
    long as its tokens equal `behind`, the model's choices after each of them: empty if they were not read. Then it is
    a candidate instead of what the block has in its places; candidates are as many as the block's tokens or more.
    """
    accepted = match_length(block, argmax)
    following = argmax[accepted]
    for other, choices in zip(alternatives, behind or repeat(()), strict=False):
        if other.accepted == accepted and other.tokens[0] == following and choices:
            further = match_length(other.tokens[1:], choices)
            path = block[:accepted] + other.tokens
            return path + block[len(path) :], accepted + 1 + further, choices[further]
    return block, accepted, following
