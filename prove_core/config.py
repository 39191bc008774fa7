"""Configuration of one engine: its checkpoint, its numerics, its KV pool and its scheduler. Unknown keys are errors."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Frozen(BaseModel):
    """Base of all configuration: immutable, and a misspelt key is an error rather than a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelConfig(Frozen):
    """Which checkpoint an engine runs and how."""

    checkpoint: str = Field(description="Built-in name (`prove models`), local folder, or hub id.")
    adapter: str | None = Field(default=None, description="Folder with a PEFT (LoRA) adapter to apply on top.")
    placeholder: str | None = Field(
        None,
        description="Token that stands for a position to predict; default: the checkpoint's own, else a free one.",
    )
    layers: Annotated[int, Field(ge=1)] | tuple[Annotated[int, Field(ge=0)], ...] | None = Field(
        default=None, description="Keep only the first N decoder layers, or those listed (a cheaper verifier)."
    )
    dtype: Literal["float32", "bfloat16", "float16"] = "bfloat16"
    device: str = Field(
        default="auto", description="`auto` (cuda when there is one, else cpu), `cpu`, `cuda`, `cuda:1` ..."
    )
    threads: int | None = Field(default=None, ge=1, description="CPU threads of a pass; default: what torch chooses.")
    deterministic: bool = Field(
        default=False, description="A row's result does not depend on what else is in the pass."
    )
    kernels: Literal["auto", "native", "torch"] = Field(
        default="auto",
        description="CPU passes in bfloat16: `native` code, compiled at first use, or torch's; `auto`: where it works.",
    )
    max_length: int | None = Field(
        default=None, ge=1, description="Longest context served; default: the checkpoint's own."
    )


class CacheConfig(Frozen):
    """The paged KV pool."""

    page_size: int = Field(default=16, ge=1, description="Tokens per page.")
    tokens: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        default=32768,
        description="Tokens the pool holds (rounded up to whole pages); `auto`: what the memory fraction leaves.",
    )
    prefix_cache: bool = True

    @property
    def pages(self) -> int:
        """Pages of a pool of known size."""
        if self.tokens == "auto":
            raise AssertionError("the size of the KV pool is not known yet")
        return -(-self.tokens // self.page_size)


class SchedulerConfig(Frozen):
    """What goes into one forward pass."""

    max_rows: int = Field(
        default=256, ge=128, description="Rows (tokens and placeholders) per pass, all sessions together."
    )
    prefill_chunk: int = Field(default=256, ge=1, description="Most prompt tokens of one session in one pass.")


AttentionChoice = Literal["auto", "torch", "flashinfer"]


class EngineConfig(Frozen):
    """One engine: the unit that a Proposer or Verifier replica hosts."""

    model: ModelConfig
    cache: CacheConfig = CacheConfig()
    scheduler: SchedulerConfig = SchedulerConfig()
    attention: AttentionChoice = Field(
        default="auto", description="`auto`: FlashInfer on a GPU that can run it, else torch."
    )
    cuda_graphs: Literal["auto", "off"] = Field(
        default="auto",
        description="`auto`: with FlashInfer, and not `deterministic`, decode passes are recorded and replayed.",
    )
