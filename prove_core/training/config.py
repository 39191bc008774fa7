"""Settings of a block-proposer training run; the defaults are those of the shipped adapter."""

from pydantic import Field

from prove_core.config import Frozen


class AdapterConfig(Frozen):
    """The shape of what is trained."""

    block_size: int = Field(8, ge=2, description="Tokens proposed per pass; one fewer placeholders are trained.")
    rank: int = Field(48, ge=1, description="Rank of every linear layer's adapter.")
    sequential: int = Field(192, ge=0, description="Width of the sequential head; 0: none.")
    scale: float = Field(2.0, gt=0, description="Factor of the adapter's output (PEFT: lora_alpha / r).")


class BatchConfig(Frozen):
    """What one optimizer step sees."""

    examples: int = Field(3, ge=1, description="Examples per forward pass.")
    rows: int = Field(224, ge=1, description="Placeholder rows per example and visit: blocks anchored at random.")
    depths: tuple[int, ...] = Field(
        (4, 4, 4, 7),
        min_length=1,
        description="Placeholders per block, batch by batch in turn: few blocks match deep down.",
    )
    accumulate: int = Field(1, ge=1, description="Forward passes per optimizer step.")


class OptimizerConfig(Frozen):
    """AdamW: linear warm-up, a plateau, then a cosine down to `floor` of the peak."""

    steps: int = Field(ge=1, description="Optimizer steps of the whole run.")
    lr: float = Field(1e-3, gt=0, description="Peak learning rate of the adapters.")
    placeholder_lr: float = Field(3e-3, gt=0, description="Peak learning rate of placeholders and sequential head.")
    warmup: int = Field(50, ge=0, description="Steps of linear warm-up.")
    plateau: float = Field(0.0, ge=0, lt=1, description="Share of the steps after warm-up that stay at the peak.")
    floor: float = Field(0.05, ge=0, le=1, description="Learning rate at the end, as a share of the peak.")
    clip: float = Field(1.0, gt=0, description="Largest norm of a step's gradient.")


class LossConfig(Frozen):
    """How placeholders are weighed against each other, see PositionWeights."""

    decay: float = Field(0.85, gt=0, le=1)
    reach: float = Field(0.5, ge=0, le=1)
    plain: float = Field(0.3, ge=0, description="Weight of the loss before the sequential head: it ranks candidates.")


class TrainingConfig(Frozen):
    """A whole run."""

    optimizer: OptimizerConfig
    adapter: AdapterConfig = AdapterConfig()
    batch: BatchConfig = BatchConfig()
    loss: LossConfig = LossConfig()
    seed: int = 0
    checkpoint_seconds: float = Field(300.0, gt=0, description="Longest time between two checkpoints.")
    report_steps: int = Field(20, ge=1, description="Steps per line of metrics.")
