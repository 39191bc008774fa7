"""A model without weights whose KV cache can be checked: slots hold token ids, and every pass proves what it reads."""

import random
import time
import zlib
from collections.abc import Sequence

from prove_core.model.window import PassOutput, SidePath, Window, WindowOutput
from prove_core.types import Alternative, Alternatives, Logprobs, TokenLogprob

VOCABULARY = 50
GARBAGE = -1


class ToyRunner:
    """Greedy next token = a hash of the whole context. Placeholders guess the true continuation with a given luck.

    `luck` is the chance that a placeholder's guess is right; wrong guesses are another id.
    Reading a slot that does not hold the token that the sequence has there shows up as a different output.
    """

    def __init__(self, page_size: int, luck: float = 0.7, seed: int = 0) -> None:
        self.page_size = page_size
        self.luck = luck
        self.random = random.Random(seed)
        self.slots: dict[tuple[int, int], int] = {}
        self.passes: list[list[Window]] = []

    @staticmethod
    def next_token(context: Sequence[int], banned: Sequence[int] = (), seed: int | None = None) -> int:
        """The toy's greedy next token; with a seed its draw, as good as any."""
        state = zlib.crc32(repr(tuple(context) if seed is None else (seed, *context)).encode())
        token = state % VOCABULARY
        while token in banned:
            token = (token + 1) % VOCABULARY
        return token

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """Write, read back and predict, window by window."""
        began = time.perf_counter()
        self.passes.append(list(windows))
        written: set[tuple[int, int]] = set()
        outputs = []
        for window in windows:
            slots = [self._slot(window, p) for p in range(window.length)]
            new = set(slots[window.start :])
            assert not (new & written), "two windows of a pass write the same slot"
            written |= new
            scratch = [GARBAGE] * (window.length - window.end)
            for slot, token in zip(slots[window.start :], [*window.tokens, *scratch], strict=True):
                self.slots[slot] = token
            context = [self.slots[slot] for slot in slots[: window.end]]
            assert GARBAGE not in context, "a placeholder's KV was read as context"
            outputs.append(self._predict(window, context))
        return PassOutput(outputs, time.perf_counter() - began)

    def _slot(self, window: Window, position: int) -> tuple[int, int]:
        return window.pages[position // self.page_size], position % self.page_size

    def _banned(self, window: Window, index: int) -> Sequence[int]:
        floor = window.floor
        return floor.stop_ids if floor is not None and index < floor.length else ()

    def _seed(self, window: Window) -> int | None:
        return window.sampling.seed if window.sampling is not None and window.sampling.draws else None

    def _predict(self, window: Window, context: list[int]) -> WindowOutput:
        argmax = tuple(
            self.next_token(context[: position + 1], self._banned(window, position + 1), self._seed(window))
            for position in range(window.end - window.logits, window.end)
        )
        behind = tuple(self._behind(window, side, context) for side in window.sides)
        groups = window.chosen(argmax, behind)
        drafts: tuple[int, ...] = ()
        others: Alternatives = ()
        for group in groups:
            truth = [*context[: window.start + group.verdict.kept], *group.verdict.further]
            guesses = self._guesses(window, truth, group.count - group.known)
            drafts += guesses
            others = self._alternatives(window, truth, guesses)
        confidences = tuple(self.random.random() for _ in argmax)
        probabilities = tuple(
            0.9 if target == best else 0.001 for target, best in zip(window.targets, argmax, strict=False)
        )
        guessed = tuple(self.random.random() for _ in drafts)
        others = others if len(groups) == 1 and window.sampling is None else ()
        logprobs = self._logprobs(window, argmax)
        return WindowOutput(argmax, confidences, probabilities, drafts, guessed, logprobs, behind, others)

    def _behind(self, window: Window, side: SidePath, context: list[int]) -> tuple[int, ...]:
        """What the model says after each token of a side path."""
        before = context[: window.start + side.after + 1]
        paths = [[*before, *side.tokens[: index + 1]] for index in range(side.count)]
        return tuple(self.next_token(path, self._banned(window, len(path))) for path in paths)

    def _alternatives(self, window: Window, truth: list[int], guesses: tuple[int, ...]) -> Alternatives:
        """In the place of some guesses what is right, or is not, with what comes after that."""
        found = []
        for accepted, guess in enumerate(guesses):
            before = [*truth, *guesses[:accepted]]
            right = self.next_token(before, self._banned(window, len(before)))
            first = right if self.random.random() < self.luck else (right + 2) % VOCABULARY
            if first == guess or first in self._banned(window, len(before)):
                continue
            following = self._guesses(window, [*before, first], self.random.randrange(3))
            chances = tuple(self.random.random() for _ in range(1 + len(following)))
            found.append(Alternative(accepted, (first, *following), chances))
        self.random.shuffle(found)
        return tuple(found)

    def _logprobs(self, window: Window, argmax: tuple[int, ...]) -> Logprobs:
        """Made up, but the same wherever a token is chosen."""
        if window.sampling is None or window.sampling.logprobs is None:
            return ()
        top = range(window.sampling.logprobs)
        return tuple(
            TokenLogprob(-0.01 * token, tuple(((token + i) % VOCABULARY, -0.01 * token - i) for i in top))
            for token in argmax
        )

    def _guesses(self, window: Window, truth: list[int], count: int) -> tuple[int, ...]:
        """What placeholders behind `truth` propose."""
        guesses = []
        for _ in range(count):
            banned = self._banned(window, len(truth))
            right = self.next_token(truth, banned, self._seed(window))
            guess = right
            if self.random.random() > self.luck:
                guess = (guess + 1) % VOCABULARY
                while guess in banned:
                    guess = (guess + 1) % VOCABULARY
            guesses.append(guess)
            truth = [*truth, right]
        return tuple(guesses)


def continuation(prompt: Sequence[int], count: int, seed: int | None = None) -> list[int]:
    """The toy's continuation of a prompt: greedy, or drawn with a seed."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(ToyRunner.next_token(tokens, seed=seed))
    return tokens[len(prompt) :]
