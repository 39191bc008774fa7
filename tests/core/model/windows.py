"""Random windows that a made-up model reads, and what comes of them, told without any indexing of rows."""

from dataclasses import dataclass

from hypothesis import strategies as st

from prove_core.model.window import PlaceholderGroup, SidePath, Window
from prove_core.types import TokenIds

IDS = st.integers(0, 2)
OTHER = 9  # what the model says behind anything that it would not have said


@dataclass(frozen=True)
class ReadWindow:
    """A window, what the model says at its rows, and the `sequence` with what came of it."""

    window: Window
    argmax: TokenIds
    behind: tuple[TokenIds, ...]
    sequence: list[int]

    def stands(self, tokens: list[int]) -> bool:
        """Whether the sequence begins so."""
        return self.sequence[: len(tokens)] == tokens


@st.composite
def read_windows(draw: st.DrawFn) -> ReadWindow:
    """The model goes on with `own` behind what is committed; groups are at any places, in any order."""
    before = draw(st.lists(IDS, max_size=4))
    committed = draw(st.lists(IDS, min_size=1, max_size=3))
    own = draw(st.lists(IDS, min_size=12, max_size=12))
    block = draw(st.one_of(st.lists(IDS, max_size=5), st.integers(0, 5).map(lambda count: own[:count])))
    ways = draw(st.lists(st.tuples(st.integers(0, 5), st.lists(IDS, min_size=1, max_size=3)), max_size=4))
    places = {(at, path[0]): path for at, path in ways if at <= len(block) and block[at : at + 1] != path[:1]}
    last = len(committed) - 1
    sides = tuple([SidePath(last + at, tuple(path)) for (at, _), path in places.items()])

    def says(path: list[int]) -> int:
        return own[len(path)] if path == own[: len(path)] else OTHER

    argmax = tuple([says(block[:count]) for count in range(len(block) + 1)])
    paths = [(block[: side.after - last], side.tokens) for side in sides]
    behind = tuple([tuple([says([*a, *b[: i + 1]]) for i in range(len(b))]) for a, b in paths])
    count = len(committed) + len(block)
    afters = draw(st.lists(st.integers(last, count - 1), unique=True, max_size=4))
    groups = tuple([PlaceholderGroup(after, draw(st.integers(1, 6))) for after in afters])
    tokens, read = [*committed, *block], draw(st.booleans())
    keeps = draw(st.booleans())
    window = Window(tokens, len(before), (), groups, len(argmax), tuple(block), before=before, sides=sides, keeps=keeps)
    whole = [block, *([[*a, *b] for a, b in paths] if read else [])]
    matches = [next((i for i, token in enumerate(way) if token != own[i]), len(way)) for way in whole]
    sequence = [*before, *committed, *own[: max(matches) + 1]]
    return ReadWindow(window, argmax, behind if read else (), sequence)
