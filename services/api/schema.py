"""The chat-completions request: OpenAI's fields, the few that vLLM adds, and `decoding`.

Everything here is checked before a model is asked. A field that is known but not supported is refused by name
(`services.api.refusals`); an unknown one likewise. Fields that only label a request (`user`, `safety_identifier`,
`prompt_cache_key`) are accepted and have no effect; `store` and `metadata` would promise storage and are refused.
"""

from dataclasses import replace
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from prove_core.decoding.acceptance import check_gate
from prove_core.errors import RequestError
from prove_core.text.prompt import Message
from prove_core.types import DecodingParams, Gate, Mode
from services.api.chat import ChatMessage, Strict
from services.api.errors import from_validation
from services.api.refusals import REQUEST_FIELDS, STREAM_OPTION_FIELDS, invalid, refuse
from services.api.sampling import Probability, SamplingOptions
from services.config.limits import MOST_CHOICES, MOST_STOPS

TokenId = Annotated[int, Field(ge=0)]
# A "before" validator turns JSON into Python objects, where strict tuples and enums take no lists and strings.
FROM_JSON = Field(strict=False)
StopString = Annotated[str, Field(min_length=1)]
StopStrings = Annotated[tuple[StopString, ...], FROM_JSON, Field(max_length=MOST_STOPS)]


class DecodingOptions(Strict):
    """How this request is decoded. What is left out comes from the server's defaults."""

    mode: Annotated[Mode | None, FROM_JSON] = None
    gate: Annotated[Gate | None, FROM_JSON] = None
    theta: Probability | None = Field(None, description="Mode prove: tokens are accepted while the score is above.")
    tau: Probability | None = Field(None, description="Mode mars: tokens are accepted while confidence is above.")
    block_size: int | None = Field(None, ge=1, le=64, description="Tokens proposed per cycle.")
    draft_length: int | None = Field(None, ge=1, le=32, description="Mode speculative: tokens drafted per cycle.")
    fused_rows: int | None = Field(None, ge=1, le=128, description="Mode fused: rows of a pass, placeholders included.")
    overlap_rows: int | None = Field(
        None, ge=0, le=96, description="Mode prove: rows the proposer runs while the verifier reads; 0: it waits."
    )
    trace: bool | None = Field(None, description="With stream: each chunk tells of its commit, in choices[].decoding.")

    def resolve(self, defaults: DecodingParams) -> DecodingParams:
        """These options over the server's defaults. Raises `RequestError` for a gate that the server has no fit of."""
        return check_gate(replace(defaults, **self.model_dump(exclude_none=True)))


class StreamOptions(Strict):
    """What a stream carries besides text."""

    include_usage: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: object) -> object:
        return refuse(data, STREAM_OPTION_FIELDS)


def _as_list(stop: object) -> object:
    if stop == "":
        raise invalid("must not be an empty string")
    if not isinstance(stop, str | list | None):
        raise invalid("must be a string or an array of strings")
    return [stop] if isinstance(stop, str) else stop


class ChatCompletionRequest(SamplingOptions):
    """Body of POST /v1/chat/completions."""

    model: str
    messages: tuple[ChatMessage, ...] = Field(min_length=1, strict=False)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1, description="Newer name of max_tokens.")
    min_tokens: int | None = Field(None, ge=0, description="Tokens before an end or a stop string counts.")
    stop: Annotated[
        StopStrings | None, BeforeValidator(_as_list, json_schema_input_type=StopString | StopStrings | None)
    ] = None
    stop_token_ids: Annotated[tuple[TokenId, ...], FROM_JSON, Field(max_length=MOST_STOPS)] | None = None
    ignore_eos: bool | None = None
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    timeout: float | None = Field(
        None, gt=0, description="Seconds until the last token, at most the server's own limit; then status 504."
    )
    priority: int | None = Field(None, ge=-(2**31), lt=2**31, description="Lower starts earlier when requests wait.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    decoding: DecodingOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: object) -> object:
        return refuse(data, REQUEST_FIELDS)

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise invalid("cannot be set together with max_tokens", "max_completion_tokens")
        if self.completion_limit is not None and (self.min_tokens or 0) > self.completion_limit:
            raise invalid(f"must not exceed max_tokens ({self.completion_limit})", "min_tokens")
        if self.stream_options is not None and not self.stream:
            raise invalid("is only allowed when stream is true", "stream_options")
        if self.decoding is not None and self.decoding.trace and not self.stream:
            raise invalid("is only allowed when stream is true", "decoding.trace")
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("is only allowed when logprobs is true", "top_logprobs")
        return self

    @classmethod
    def parse(cls, body: bytes) -> Self:
        """A request from the bytes of its JSON. Raises `ApiError` (400) that names the offending field."""
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            raise from_validation(error) from None

    @property
    def completion_limit(self) -> int | None:
        """`max_tokens` under either name; None leaves it to the context."""
        return self.max_tokens if self.max_tokens is not None else self.max_completion_tokens

    @property
    def completion_field(self) -> str:
        """The name under which the request gives its `completion_limit`, if it gives one."""
        return "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def params(self, defaults: DecodingParams) -> DecodingParams:
        """How to decode: the request's `decoding` over the server's defaults."""
        return defaults if self.decoding is None else self.decoding.resolve(defaults)

    def chat(self) -> list[Message]:
        """The messages for the prompt renderer."""
        return [message.to_message() for message in self.messages]

    def check_token_ids(self, vocabulary: int) -> None:
        """Raise `RequestError` when a token id named by the request is not one of the tokenizer's."""
        for token in self.stop_token_ids or ():
            if token >= vocabulary:
                raise RequestError(
                    f"stop_token_ids: {token} is not a token id (there are {vocabulary})", "stop_token_ids"
                )
        self.check_biased_ids(vocabulary)
