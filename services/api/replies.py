"""Bodies of successful replies, in OpenAI's shape, and our own addition to them: `metrics`."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field

from prove_core.statistics import CompletionStatistics
from prove_core.types import Cost, DecodingParams, FinishReason, Gate, Mode
from services.api.logprobs import ChoiceLogprobs


@dataclass(frozen=True, slots=True)
class Head:
    """What all chunks of a reply share. `created` in seconds since the epoch; `choices`: how many there will be."""

    id: str
    created: int
    model: str
    choices: int = 1

    @classmethod
    def new(cls, model: str, choices: int = 1) -> "Head":
        """A head with a fresh id."""
        return cls(f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), model, choices)


class Usage(BaseModel):
    """Tokens as autoregressive decoding would have counted them; the prompt counts once, all choices add up."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int

    @classmethod
    def of(cls, prompt_tokens: int, completion_tokens: int) -> "Usage":
        """Usage from its two parts."""
        return cls(
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            total_tokens=prompt_tokens + completion_tokens,
        )


class Passes(BaseModel):
    """Forward passes by role, prefill included."""

    proposer: int
    verifier: int


class SpeculativeDecoding(BaseModel):
    """How the reply was decoded, summed over its choices."""

    mode: Mode
    cycles: int = Field(description="Propose / verify / commit rounds.")
    drafts: int = Field(description="Rounds that had candidates beyond the autoregressive token.")
    draft_tokens: int = Field(description="Candidates in all drafts.")
    accepted_tokens: int = Field(description="Candidates that became part of the reply.")
    accepted_per_position: list[int] = Field(description="Item i: drafts whose candidate i was accepted.")
    acceptance_rate: float = Field(description="accepted_tokens / draft_tokens; 0 without drafts.")
    committed_tokens: int = Field(description="Tokens of the reply; equals usage.completion_tokens.")
    tokens_per_cycle: float = Field(
        description="committed_tokens / cycles; a last cycle that yielded only the end token counts as a cycle."
    )
    degraded: bool = Field(description="For want of a verifier the proposer decoded a part alone, exactly as `ar`.")
    degraded_from_token: int | None = Field(description="Tokens before that part; of several choices, the fewest.")
    passes: Passes
    pass_seconds: float = Field(description="Time in forward passes of both roles.")
    first_token_seconds: float | None = Field(description="From the request's arrival to its first token.")
    total_seconds: float = Field(description="From the request's arrival to its last token.")

    @classmethod
    def of(
        cls,
        choices: Sequence[CompletionStatistics],
        *,
        total_seconds: float,
        first_token_seconds: float | None = None,
    ) -> "SpeculativeDecoding":
        """The report on the choices (at least one) of a reply."""
        cost = sum((choice.cost for choice in choices), Cost())
        draft_tokens = sum(choice.draft_tokens for choice in choices)
        accepted = sum(choice.accepted_tokens for choice in choices)
        committed = sum(choice.committed_tokens for choice in choices)
        degraded = [choice.degraded_from for choice in choices if choice.degraded_from is not None]
        return cls(
            mode=choices[0].mode,
            cycles=cost.cycles,
            drafts=sum(choice.drafts for choice in choices),
            draft_tokens=draft_tokens,
            accepted_tokens=accepted,
            accepted_per_position=_sum_positions([choice.accepted_per_position for choice in choices]),
            acceptance_rate=accepted / draft_tokens if draft_tokens else 0.0,
            committed_tokens=committed,
            tokens_per_cycle=committed / cost.cycles if cost.cycles else 0.0,
            degraded=bool(degraded),
            degraded_from_token=min(degraded, default=None),
            passes=Passes(proposer=cost.proposer_passes, verifier=cost.verifier_passes),
            pass_seconds=cost.pass_seconds,
            first_token_seconds=first_token_seconds,
            total_seconds=total_seconds,
        )


class Metrics(BaseModel):
    """Per-request statistics beyond OpenAI's."""

    speculative_decoding: SpeculativeDecoding


class ReplyMessage(BaseModel):
    """The assistant's message."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class Choice(BaseModel):
    """One completion."""

    index: int
    message: ReplyMessage
    logprobs: ChoiceLogprobs | None = None
    finish_reason: FinishReason


class ChatCompletion(BaseModel):
    """Reply to a chat-completions request that does not stream."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage
    metrics: Metrics


class ServedDecoding(BaseModel):
    """The modes a request may ask for, and what it gets where its `decoding` says nothing."""

    modes: list[Mode]
    mode: Mode
    gate: Gate
    gates: list[Gate]
    theta: float
    tau: float
    block_size: int
    draft_length: int
    fused_rows: int
    overlap_rows: int

    @classmethod
    def of(cls, defaults: DecodingParams, modes: list[Mode]) -> "ServedDecoding":
        """Of a server with these defaults. Gate `logistic` is served where weights are."""
        gates = [gate for gate in Gate if gate is not Gate.LOGISTIC or defaults.gate_weights is not None]
        fields = ("mode", "gate", "theta", "tau", "block_size", "draft_length", "fused_rows", "overlap_rows")
        return cls(modes=modes, gates=gates, **{field: getattr(defaults, field) for field in fields})


class ModelCard(BaseModel):
    """One served model."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "prove"
    decoding: ServedDecoding | None = None


class ModelList(BaseModel):
    """Reply to GET /v1/models."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


def _sum_positions(counts: Sequence[Sequence[int]]) -> list[int]:
    longest = max(map(len, counts))
    return [sum(count[i] for count in counts if i < len(count)) for i in range(longest)]
