"""How long faults are waited out, and what happens then: the section `healing` of the configuration."""

from typing import Literal

from pydantic import Field

from prove_core.config import Frozen


class Healing(Frozen):
    """When a replica counts as lost, and what becomes of its sessions."""

    patience_s: float = Field(
        default=120.0, gt=0, description="A session that lost its replica waits so long for another, then fails."
    )
    silence_limit_s: float = Field(
        default=5.0, gt=0, description="A replica of which nothing was heard for so long is left; it may still run."
    )
    pass_limit_s: float = Field(
        default=60.0,
        gt=0,
        description="A replica whose forward pass takes longer is replaced. Prompts are read in many passes.",
    )
    verifier_deadline_s: float = Field(
        default=45.0,
        gt=0,
        description="After so long without a verifier, modes of two models do as `degrade` says. A replica's restart "
        "should fit in: it changes no text then. Proxies often cut a stream that is silent for 60 s.",
    )
    degrade: Literal["lossless", "fused", "auto", "ar", "fail"] = Field(
        default="lossless",
        description="The mode in which the proposer goes on alone until a verifier is back; fail: status 503.",
    )
