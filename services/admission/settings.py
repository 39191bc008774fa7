"""How much may wait."""

from pydantic import Field

from prove_core.config import Frozen


class AdmissionSettings(Frozen):
    """Requests that the replicas' KV has no room for wait in each Router's queue, up to these bounds; then 429.

    A request counts as its prompt and the completion that is expected of it: `max_tokens`, or what completions here
    mostly come to if that is less.
    """

    max_queued_requests: int = Field(default=512, ge=0, description="Requests that may wait.")
    max_queued_tokens: int = Field(
        default=262144, ge=0, description="Tokens of those together; also the most that one request may ask for."
    )

    @property
    def most_waiting(self) -> int | None:
        """Tokens of the largest request that may wait; None where nothing may, so that no size is too large."""
        return self.max_queued_tokens if self.max_queued_requests and self.max_queued_tokens else None
