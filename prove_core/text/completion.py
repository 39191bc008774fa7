"""From committed tokens to what the user gets: text, cut at stop strings, and steps cut alike."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerBase

from prove_core.text.detokenizer import Detokenizer
from prove_core.text.stop import StopMatcher
from prove_core.types import Step


@dataclass(frozen=True, slots=True)
class TextStep:
    """A step as the user gets it. `step.tokens` ends with the token that completed a stop string, if one did."""

    text: str
    step: Step
    stopped: bool


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
        for index, token in enumerate(step.tokens, start=1):
            self.tokens += 1
            text = self._detokenizer.push(token)
            safe, stopped = self._stop.push(text, armed=self.tokens >= self._min_tokens)
            pieces.append(safe)
            if stopped:
                cut = replace(step, tokens=step.tokens[:index], accepted=min(step.accepted, index))
                return TextStep("".join(pieces), cut, stopped=True)
        return TextStep("".join(pieces), step, stopped=False)

    def finish(self) -> str:
        """Text that was held back as the possible beginning of a stop string."""
        return self._stop.finish()
