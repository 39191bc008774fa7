"""Where a completion ends: stop ids and the token budget, applied inside a commit."""

from prove_core.types import FinishReason, Limits, Step, TokenIds


class Budget:
    """Counts the tokens of one completion against its `Limits`."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.generated = 0

    @property
    def remaining(self) -> int:
        """Tokens that may still be generated, at least 1 while the completion runs."""
        return self._limits.max_tokens - self.generated

    def take(self, step: Step) -> tuple[Step, FinishReason | None]:
        """The part of `step` that the user gets, and why the completion ends there if it does.

        A stop id ends the completion and is not part of it; at `max_tokens` the rest of the commit is dropped.
        """
        kept = 0
        reason: FinishReason | None = None
        for token in step.tokens:
            if token in self._limits.stop_ids:
                reason = FinishReason.STOP
                break
            kept += 1
            if self.generated + kept == self._limits.max_tokens:
                reason = FinishReason.LENGTH
                break
        self.generated += kept
        return step.cut(kept), reason

    def through_stop(self, block: TokenIds) -> TokenIds:
        """`block` up to its first stop id, that included: nothing after it can be committed."""
        for index, token in enumerate(block):
            if token in self._limits.stop_ids:
                return block[: index + 1]
        return block
