"""Choice of the token that stands for a position to predict."""

import re
from collections.abc import Mapping

from prove_core.errors import CheckpointError

# what block-trained checkpoints call it, then tokens that text-only chat never uses
_KNOWN = ("<|mask|>", "<mask>", "[MASK]", "<|MASK|>", "<|quad_start|>")
_SPARE = re.compile(r"[<\[]\|?(reserved|unused|extra|dummy|placeholder|SPECIAL)[a-z_]*\d+\|?[>\]]")


def explicit_placeholder(token: str, vocabulary: Mapping[str, int], width: int, owner: str) -> int:
    """The id of a placeholder that was asked for by name. Raises CheckpointError if the model has no such row."""
    found = vocabulary.get(token)
    if found is None:
        raise CheckpointError(f"placeholder {token!r} is no token of checkpoint {owner!r}: name one that it has")
    if found >= width:
        raise CheckpointError(f"placeholder {token!r} (id {found}) of checkpoint {owner!r} has no embedding row")
    return found


def find_placeholder(mask_token: str | None, vocabulary: Mapping[str, int], width: int) -> int | None:
    """The mask token, else a known spare token, else the first reserved one, else None: nothing obvious is free."""
    for token in (mask_token, *_KNOWN):
        if token is not None and vocabulary.get(token, width) < width:
            return vocabulary[token]
    spare = [index for token, index in vocabulary.items() if index < width and _SPARE.fullmatch(token)]
    return min(spare, default=None)
