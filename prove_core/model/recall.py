"""What the context says about a draft: a candidate that has followed the same tokens before scores higher.

Text repeats itself: names, numbers, whole phrases of the prompt come again. A placeholder's state knows the context but
not which tokens those before it will propose; once they are chosen, the places where they stood before say what came
next there. Proposals only: no row that is committed from is touched.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

LONGEST = 6  # tokens of a match beyond which it counts as one of so many
_NONE = -1  # no token: what stands before a shorter context


@dataclass(frozen=True, slots=True)
class Recall:
    """What matches add to a candidate's score (a logit).

    A candidate's match is the longest run of tokens before it that also ends the context. `matches[n]` is what a match
    of n + 1 tokens adds to that of n; `latest` is for the candidate that followed the latest of the longest matches.
    """

    matches: tuple[float, ...]
    latest: float

    def __post_init__(self) -> None:
        if len(self.matches) > LONGEST:
            raise ValueError(f"matches are told apart up to {LONGEST} tokens, not {len(self.matches)}")

    def bonuses(self, features: Tensor) -> Tensor:
        """Of candidates with these `match_features` [..., LONGEST + 1]: float32 [...]."""
        return features @ features.new_tensor([*self.padded, self.latest])

    @property
    def padded(self) -> tuple[float, ...]:
        """`matches` of all lengths: those that it leaves out add nothing."""
        return (*self.matches, *[0.0] * LONGEST)[:LONGEST]

    @property
    def totals(self) -> tuple[float, ...]:
        """By the length of the match, from none: what it adds in all."""
        return tuple(accumulate(self.padded, initial=0.0))


def contexts(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """int64 [rows, longest], each row's tokens at its end: for `match_features`. Quick for arrays of type `i`."""
    longest = max(map(len, rows))
    padded = np.full((len(rows), longest), _NONE, dtype=np.int32)
    for row, tokens in zip(padded, rows, strict=True):
        row[longest - len(tokens) :] = tokens
    return torch.from_numpy(padded).to(device, torch.int64)


def match_features(context: Tensor, candidates: Tensor, vocabulary: int) -> Tensor:
    """float32 [rows, candidates, LONGEST + 1]: is the match at least 1, 2, ... tokens long, is it the latest longest.

    context int64 [rows, length], its last token the one that candidates [rows, candidates] would follow.
    """
    following = context[:, 1:]
    lengths = _match_lengths(context)
    table = lengths.new_zeros(len(context), vocabulary)
    table.scatter_reduce_(1, following.clamp(min=0), lengths, "amax")
    found = table.gather(1, candidates)
    steps = torch.arange(1, LONGEST + 1, device=context.device)
    longest = lengths.amax(1, keepdim=True) if lengths.shape[1] else lengths.new_zeros(len(context), 1)
    places = torch.arange(1, lengths.shape[1] + 1, device=context.device)
    last = ((lengths == longest) & (longest > 0)).long().mul(places).amax(1, keepdim=True) if len(places) else longest
    latest = (context.gather(1, last) == candidates) & (last > 0)
    return torch.cat([found[..., None] >= steps, latest[..., None]], dim=-1).float()


def _match_lengths(context: Tensor) -> Tensor:
    """int32 [rows, length - 1]: how many tokens before each but the first also end the context, at most LONGEST."""
    rows, length = context.shape
    lengths = context.new_zeros(rows, max(0, length - 1), dtype=torch.int32)
    alive = torch.ones_like(lengths, dtype=torch.bool)
    for back in range(min(LONGEST, length - 1)):
        ending = context[:, length - 1 - back, None]
        alive[:, :back] = False
        alive[:, back:] &= (context[:, : length - 1 - back] == ending) & (ending != _NONE)
        lengths += alive
    return lengths
