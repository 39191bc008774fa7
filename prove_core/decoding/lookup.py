"""Drafts that cost no pass to propose: what followed in the context where it last ended as it does now.

Text repeats itself, an answer its question above all. Known as prompt lookup decoding; here it fills in where a pass
left no drafts or doubtful ones, and where proposing does not pay: a looked-up draft costs a row, and no placeholder.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from prove_core.types import TokenIds

SHORTEST, LONGER = 2, 4  # tokens of a match that are looked up, which `Lookup` is written for: a longer one goes first
LONGEST = 8  # tokens of a match beyond which it counts as one of so many


@dataclass(frozen=True, slots=True)
class Repeat:
    """Tokens that may come next, and how many tokens the context ends with that came before them there."""

    tokens: TokenIds
    match: int


NO_REPEAT = Repeat((), 0)


class Lookup:
    """An index over `tokens`, a sequence that only grows; it takes in what is new when asked."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens = tokens
        self._indexed = 0
        self._short: dict[tuple[int, int], int] = {}  # place of the token that followed last, by the two before it
        self._long: dict[tuple[int, int, int, int], int] = {}  # by the four before it

    def find(self, count: int) -> Repeat:
        """At most `count` tokens, those behind the latest of the longer matches, else of the shorter ones."""
        tokens = self._tokens
        end = len(tokens)
        if end < SHORTEST or count < 1:
            return NO_REPEAT
        if self._indexed < end:
            self._index(end)
        place = self._short.get((tokens[-2], tokens[-1]))
        if place is None:
            return NO_REPEAT
        if end >= LONGER:
            place = self._long.get((tokens[-4], tokens[-3], tokens[-2], tokens[-1]), place)
        return Repeat(tuple(tokens[place : place + count]), self._match(place))

    def _index(self, end: int) -> None:
        tokens = self._tokens
        for place in range(max(SHORTEST, self._indexed), end):
            before = tokens[place - 2], tokens[place - 1]
            self._short[before] = place
            if place >= LONGER:
                self._long[(tokens[place - 4], tokens[place - 3], *before)] = place
        self._indexed = end

    def _match(self, place: int) -> int:
        tokens, end, length = self._tokens, len(self._tokens), SHORTEST
        while length < min(LONGEST, place) and tokens[place - 1 - length] == tokens[end - 1 - length]:
            length += 1
        return length


_FIRST, _FURTHER = 0.45, 0.65  # chances of a draft behind the shortest match, and of one behind a draft that was right
_PER_TOKEN = 0.05  # what each more token of the match adds to either
_WEIGHT = 12.0  # of these beliefs, in drafts verified
_MEMORY = 0.998  # weight of the past per repeat: what was seldom right is tried again some day


class Repeats:
    """How often looked-up drafts are right, by the length of their match; begins with beliefs, and learns."""

    def __init__(self) -> None:
        lengths = range(LONGEST - SHORTEST + 1)
        self._first = [_Chance(_FIRST + _PER_TOKEN * more) for more in lengths]
        self._further = [_Chance(min(0.9, _FURTHER + _PER_TOKEN * more)) for more in lengths]

    def chances(self, repeat: Repeat) -> list[float]:
        """Of each token of `repeat` that it comes next, given that those before it do."""
        if not repeat.tokens:
            return []
        further = self._further[repeat.match - SHORTEST].mean
        return [self.first(repeat.match), *[further] * (len(repeat.tokens) - 1)]

    def first(self, match: int) -> float:
        """The chance of the first token behind such a match."""
        return self._first[match - SHORTEST].mean

    def learn(self, match: int, drafted: int, accepted: int) -> None:
        """So many drafts behind such a match were verified; none teaches that time has passed."""
        level = match - SHORTEST
        first, further = self._first[level], self._further[level]
        if not drafted:
            first.fade()
            further.fade()
            return
        first.add(accepted > 0)
        for place in range(1, min(drafted, accepted + 1)):
            further.add(accepted > place)


class _Chance:
    """A mean of what was seen and of a belief, of which what was seen fades."""

    def __init__(self, belief: float) -> None:
        self._belief = belief
        self._tried, self._right = 0.0, 0.0

    @property
    def mean(self) -> float:
        return (self._right + _WEIGHT * self._belief) / (self._tried + _WEIGHT)

    def add(self, right: bool) -> None:
        self.fade()
        self._tried += 1.0
        self._right += right

    def fade(self) -> None:
        if self._tried:
            self._tried *= _MEMORY
            self._right *= _MEMORY
