"""Settings of training runs; the defaults are those of the shipped pair."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from prove_core.config import Frozen, ModelConfig


class Method(StrEnum):
    """What a run trains. Gated LoRA acts on placeholder rows alone, so the AR model stays the base's, bit for bit."""

    GATED = "gated"
    UNGATED = "ungated"
    FULL = "full"


class AdapterConfig(Frozen):
    """The shape of a trained proposer."""

    block_size: int = Field(8, ge=2, description="Tokens proposed per pass; one fewer placeholders are trained.")
    rank: int = Field(16, ge=1, description="Rank of every linear layer's adapter.")
    scale: float = Field(2.0, gt=0, description="Factor of the adapter's output (PEFT: lora_alpha / r).")
    sequential: int = Field(256, ge=0, description="Width of the sequential head; 0: none.")
    placeholders: Literal["distinct", "shared"] = Field(
        "distinct", description="An embedding for each position of a block, or one for all."
    )


class BatchConfig(Frozen):
    """What one optimizer step sees."""

    examples: int = Field(4, ge=1, description="Examples per forward pass.")
    accumulate: int = Field(1, ge=1, description="Forward passes per optimizer step.")


class BlockBatchConfig(BatchConfig):
    """The same for block training."""

    rows: int = Field(224, ge=1, description="Placeholder rows per example and visit: blocks anchored at random.")
    depths: tuple[Annotated[int, Field(ge=1)], ...] = Field(
        (4, 4, 4, 7),
        min_length=1,
        description="Placeholders per block, batch by batch in turn: few blocks match deep down.",
    )


class OptimizerConfig(Frozen):
    """AdamW: linear warm-up, a plateau, then a cosine down to `floor` of the peak."""

    steps: int = Field(1000, ge=0, description="Optimizer steps of the whole run; 0: export the start.")
    lr: float = Field(1e-3, gt=0, description="Peak learning rate of LoRA matrices, or of all weights (full).")
    placeholder_lr: float = Field(3e-3, gt=0, description="Peak learning rate of placeholders and sequential head.")
    warmup: int = Field(50, ge=0, description="Steps of linear warm-up.")
    plateau: float = Field(0.0, ge=0, lt=1, description="Share of the steps after warm-up that stay at the peak.")
    floor: float = Field(0.05, ge=0, le=1, description="Learning rate at the end, as a share of the peak.")
    clip: float = Field(1.0, gt=0, description="Largest norm of a step's gradient.")


class LossConfig(Frozen):
    """How placeholders are weighed against each other, see PositionWeights, and the block loss against others."""

    decay: float = Field(0.85, gt=0, le=1)
    reach: float = Field(0.5, ge=0, le=1)
    plain: float = Field(0.3, ge=0, description="Weight of the loss before the sequential head: it ranks candidates.")
    kl: float = Field(
        0.0, ge=0, le=1, description="Share of the model's own AR distribution in the targets; the rest is its token."
    )
    ar: float = Field(1.0, ge=0, description="Weight of the AR loss on the answers (not for gated adapters).")


class Run(Frozen):
    """What all runs have."""

    model: ModelConfig = ModelConfig(checkpoint="smollm2-135m-instruct")
    optimizer: OptimizerConfig = OptimizerConfig()
    seed: int = 0
    checkpoint_seconds: float = Field(300.0, gt=0, description="Longest time between two checkpoints.")
    report_steps: int = Field(20, ge=1, description="Steps per line of metrics.")


class ProposerTraining(Run):
    """Block training (paper appendix A, stage 2)."""

    method: Method = Method.GATED
    adapter: AdapterConfig = AdapterConfig()
    batch: BlockBatchConfig = BlockBatchConfig()
    loss: LossConfig = LossConfig()
    warm_start: str | None = Field(None, description="Adapter folder to start from, of any rank (not for full).")

    @model_validator(mode="after")
    def _full_is_a_plain_checkpoint(self) -> Self:
        """A checkpoint folder has one placeholder row, in the embedding, and no place for a head."""
        if self.method is Method.FULL:
            if self.adapter.sequential or self.adapter.placeholders == "distinct":
                raise ValueError("method full needs adapter.sequential 0 and adapter.placeholders shared")
            if self.warm_start is not None:
                raise ValueError("method full starts from model.checkpoint: leave warm_start out")
        return self


class VerifierTraining(Run):
    """AR fine-tuning on answers: of a verifier on its proposer's (paper appendix A), or stage 1 of a proposer.

    Gated adapters make no sense here: a verifier has no placeholders.
    """

    method: Literal[Method.UNGATED, Method.FULL] = Method.UNGATED
    pick: int | None = Field(
        None, ge=1, description="Keep this many layers: those that turn the hidden states of the data most."
    )
    rank: int = Field(116, ge=1, description="Rank of every linear layer's adapter.")
    scale: float = Field(2.0, gt=0, description="Factor of the adapter's output (PEFT: lora_alpha / r).")
    batch: BatchConfig = BatchConfig()

    @model_validator(mode="after")
    def _one_choice_of_layers(self) -> Self:
        if self.pick is not None and self.model.layers is not None:
            raise ValueError("pick chooses the layers: leave model.layers out")
        return self
