"""What a client may ask of the server: the configuration's section `limits`."""

from pydantic import Field

from prove_core.config import Frozen

# The most that limits can be set to: these travel with every call of a session.
MOST_CHOICES = 128
MOST_STOPS = 256
MOST_BIASES = 1024


class RequestLimits(Frozen):
    """Of one request."""

    max_body_bytes: int = Field(default=4 << 20, ge=1024)
    request_timeout_s: float = Field(default=600.0, gt=0, description="From a request's arrival to its last token.")
    max_messages: int = Field(default=2048, ge=1)
    max_prompt_tokens: int | None = Field(default=None, ge=1, description="null: what the context holds.")
    max_completion_tokens: int | None = Field(default=None, ge=1, description="Of each choice; null: as the context.")
    max_choices: int = Field(default=16, ge=1, le=MOST_CHOICES, description="Largest `n`.")
    max_stops: int = Field(default=16, ge=1, le=MOST_STOPS, description="Stop strings, and stop token ids likewise.")
    max_stop_length: int = Field(default=1024, ge=1, description="Characters of a stop string.")
    max_logit_biases: int = Field(default=MOST_BIASES, ge=0, le=MOST_BIASES)
