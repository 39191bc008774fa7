"""How many replicas each role may have, and what counts as busy."""

from typing import Self

from pydantic import Field, model_validator

from prove_core.config import Frozen


class Autoscaling(Frozen):
    """Bounds and delays, which every role has."""

    min: int = Field(default=1, ge=1, description="Fewest replicas.")
    max: int = Field(default=2, ge=1, description="Most replicas.")
    upscale_delay_s: float = Field(default=5.0, ge=0, description="How long more must be wanted before there are more.")
    downscale_delay_s: float = Field(default=60.0, ge=0, description="The same for fewer.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) must not exceed max ({self.max})")
        return self


class RouterAutoscaling(Autoscaling):
    """Routers wait more than they compute: they are counted by the requests that each has in flight."""

    target_ongoing_requests: float = Field(default=128.0, gt=0, description="Requests in flight per Router.")


class ProposerAutoscaling(Autoscaling):
    """A proposer decodes its sessions in common passes and is never idle meanwhile: sessions and KV tell its load."""

    target_sessions: float = Field(default=16.0, gt=0, description="Sessions per replica, about.")
    target_kv: float = Field(default=0.8, gt=0, le=1, description="Share of the KV pool in use or booked, at most.")
    max_wait_s: float = Field(
        default=1.0, gt=0, description="Longest p90 of the time that calls wait before their first pass."
    )


class VerifierAutoscaling(Autoscaling):
    """A verifier rests while the proposer works: the share of time spent in passes tells its load."""

    target_busy: float = Field(default=0.7, gt=0, le=1, description="Share of time in passes, about.")
    target_kv: float = Field(default=0.8, gt=0, le=1, description="Share of the KV pool in use or booked, at most.")
    max_wait_s: float = Field(
        default=0.2, gt=0, description="Longest p90 of the time that calls wait before their first pass."
    )
