"""`choices[].logprobs` of a reply, in OpenAI's shape."""

from typing import Self

from pydantic import BaseModel, Field
from transformers import PreTrainedTokenizerBase

from prove_core.text.detokenizer import REPLACEMENT
from prove_core.types import Step

LEAST = -9999.0  # what OpenAI gives for an impossible token: JSON has no infinity


class TokenScore(BaseModel):
    """A token by itself. `bytes` are those of its text; null where it is but a part of a character."""

    token: str
    logprob: float
    bytes: list[int] | None

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, token: int, logprob: float) -> Self:
        """The score of an id."""
        text: str = tokenizer.decode([token], clean_up_tokenization_spaces=False)
        part = REPLACEMENT in text
        return cls(token=text, logprob=max(logprob, LEAST), bytes=None if part else list(text.encode()))


class ContentScore(TokenScore):
    """A token of the reply, and the likeliest ones in its place."""

    top_logprobs: list[TokenScore] = []


class ChoiceLogprobs(BaseModel):
    """One entry per token of the reply."""

    content: list[ContentScore] = Field(default_factory=list)
    refusal: None = None


def content_scores(tokenizer: PreTrainedTokenizerBase, step: Step) -> list[ContentScore]:
    """The entries of a step's tokens; none if the request did not ask."""
    entries = []
    for token, scored in zip(step.tokens, step.logprobs, strict=False):
        entry = ContentScore.of(tokenizer, token, scored.logprob)
        entry.top_logprobs = [TokenScore.of(tokenizer, other, logprob) for other, logprob in scored.top]
        entries.append(entry)
    return entries
