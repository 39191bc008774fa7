"""The frames of a stream, as the API's description shows them. `streaming` builds them without these: it is faster."""

from typing import Literal

from pydantic import BaseModel

from prove_core.types import FinishReason
from services.api.logprobs import ChoiceLogprobs
from services.api.replies import Metrics, Usage
from services.api.trace import CommitTrace


class ChunkDelta(BaseModel):
    """What a choice gained."""

    role: Literal["assistant"] = "assistant"
    content: str = ""


class ChunkChoice(BaseModel):
    """One choice of a frame. `decoding` is there if `decoding.trace` asks for it."""

    index: int
    delta: ChunkDelta
    logprobs: ChoiceLogprobs | None
    finish_reason: FinishReason | None
    decoding: CommitTrace | None = None


class ChatCompletionChunk(BaseModel):
    """One frame: `data: ` and this. With `stream_options.include_usage` a last one has no choice, but the usage."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None = None
    metrics: Metrics | None = None
