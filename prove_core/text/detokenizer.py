"""Token ids to text, one token at a time."""

from copy import copy

from transformers import PreTrainedTokenizerBase

REPLACEMENT = "\ufffd"  # what decoders put in the place of bytes that are not (yet) a character
LONGEST_WINDOW = 64  # tokens; a longer run without one clean boundary is not text


class Detokenizer:
    """The text of a growing sequence of token ids, special tokens skipped.

    `push` returns what a token adds. A character whose bytes are incomplete is held back, and dropped if it never
    completes; bytes that can no longer become one come out as U+FFFD. The joined pieces are the decoded sequence.

    (`tokenizers.DecodeStream` raises on byte-fallback vocabularies when broken bytes follow a character made of bytes.)
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        # A short tail of the sequence that starts at a clean boundary: decoders strip a leading space and join byte
        # tokens, so a token's text depends on its neighbours.
        self._window: list[int] = []
        self._clean = 0  # tokens of the window that precede its last clean boundary
        self._sent = 0  # characters of the window's text that are out

    def push(self, token: int) -> str:
        """The text that became certain with this token; often empty inside a character."""
        self._window.append(token)
        text = self._decode()
        certain = text.rstrip(REPLACEMENT)
        delta = certain[self._sent :]
        if delta and len(certain) == len(text):
            self._forget(self._clean)
            self._clean = len(self._window)
        elif len(self._window) > LONGEST_WINDOW:
            self._forget(LONGEST_WINDOW // 2)
            self._clean = 0
        else:
            self._sent = max(self._sent, len(certain))
        return delta

    def fork(self) -> "Detokenizer":
        """Another one of the same tokens so far, for tokens that this one is not to see."""
        other = copy(self)
        other._window = list(self._window)
        return other

    def _forget(self, tokens: int) -> None:
        del self._window[:tokens]
        self._sent = len(self._decode().rstrip(REPLACEMENT))

    def _decode(self) -> str:
        text: str = self._tokenizer.decode(self._window, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text
