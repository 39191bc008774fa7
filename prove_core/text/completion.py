"""From committed tokens to what the user gets: text, cut at stop strings, and steps cut alike."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerBase

from prove_core.text.detokenizer import Detokenizer
from prove_core.text.stop import StopMatcher
from prove_core.types import Step


@dataclass(frozen=True, slots=True)
class TextStep:
    """A step as the user gets it. `step.tokens` ends with the token that completed a stop string, if one did.

    `pieces`: the text that became certain with each of the tokens. `rejected`: what each rejected candidate would have
    added.
    """

    pieces: tuple[str, ...]
    step: Step
    stopped: bool
    rejected: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The text that the step adds."""
        return "".join(self.pieces)


class CompletionText:
    """The text of one completion, and its tokens as autoregressive decoding would have counted them.

    `feed` each step in order until one is `stopped` (then the completion is over, with finish reason "stop") or the
    steps end; call `finish` in the latter case. Streamed and whole completions use the same object, so they agree.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stop_strings: Sequence[str] = (), *, min_tokens: int = 0
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer)
        self._stop = StopMatcher(stop_strings)
        self._min_tokens = min_tokens
        self.tokens = 0  # tokens the user has got

    def feed(self, step: Step) -> TextStep:
        """The text that a step adds. A stop string cuts the step after the token that completes it."""
        pieces: list[str] = []
        rejected = self._rejected(step) if step.rejected else ()
        for index, token in enumerate(step.tokens, start=1):
            self.tokens += 1
            text = self._detokenizer.push(token)
            safe, stopped = self._stop.push(text, armed=self.tokens >= self._min_tokens)
            pieces.append(safe)
            if stopped:
                return TextStep(tuple(pieces), replace(step.cut(index), rejected=()), stopped=True)
        return TextStep(tuple(pieces), step, stopped=False, rejected=rejected)

    def _rejected(self, step: Step) -> tuple[str, ...]:
        """Text of the rejected candidates, in the place that they would have had."""
        detokenizer = self._detokenizer.fork()
        for token in step.tokens[: step.accepted]:
            detokenizer.push(token)
        return tuple(detokenizer.push(token) for token in step.rejected)

    def finish(self) -> str:
        """Text that was held back as the possible beginning of a stop string."""
        return self._stop.finish()
