"""What a stream tells of each commit when `decoding.trace` asks for it: its tokens, and what was rejected."""

from dataclasses import dataclass
from enum import StrEnum

from prove_core.text.completion import TextStep
from prove_core.types import Step


class TokenKind(StrEnum):
    """Where a committed token comes from."""

    AR = "ar"  # the model's next token, with nothing proposed for its place
    ACCEPTED = "accepted"  # a candidate
    CORRECTED = "corrected"  # the verifying pass's own, in place of a rejected candidate
    BONUS = "bonus"  # the verifying pass's own, after the whole draft was accepted


@dataclass(frozen=True, slots=True)
class TracedToken:
    """One committed token. `text` is what became certain with it: empty inside a character.

    `position` in its block: candidates count from 1, and 0 is the AR token before them.
    """

    text: str
    position: int
    kind: TokenKind


@dataclass(frozen=True, slots=True)
class CommitTrace:
    """One decision of a cycle, as `choices[].decoding` of a chunk. The texts of `tokens` join to the chunk's content.

    `cycle` counts from 1; `drafted` candidates were tried, `accepted` of them are among `tokens`, `rejected` are the
    texts of others; `pass_ms` is the time in forward passes since the commit before.
    """

    cycle: int
    tokens: tuple[TracedToken, ...]
    rejected: tuple[str, ...]
    drafted: int
    accepted: int
    pass_ms: float

    @classmethod
    def of(cls, text: TextStep, cycle: int) -> "CommitTrace":
        """The trace of a step as the user gets it, in the `cycle`-th cycle of its completion."""
        step = text.step
        tokens = tuple(_token(step, index, piece) for index, piece in enumerate(text.pieces))
        return cls(cycle, tokens, text.rejected, step.drafted, step.accepted, 1000 * step.cost.pass_seconds)


def _token(step: Step, index: int, piece: str) -> TracedToken:
    if not step.drafted:
        return TracedToken(piece, index, TokenKind.AR)
    if index < step.accepted:
        return TracedToken(piece, index + 1, TokenKind.ACCEPTED)
    kind = TokenKind.BONUS if step.accepted == step.drafted else TokenKind.CORRECTED
    return TracedToken(piece, index + 1, kind)
