"""The learning rate as a pure function of the step."""

import math

from prove_core.training.config import OptimizerConfig


def factor(step: int, config: OptimizerConfig) -> float:
    """Share of the peak learning rate for step `step` (from 0) of `config.steps`."""
    if step < config.warmup:
        return (step + 1) / config.warmup
    after = (step - config.warmup) / max(1, config.steps - config.warmup)
    tail = min(1.0, max(0.0, (after - config.plateau) / (1.0 - config.plateau)))
    return config.floor + (1.0 - config.floor) * 0.5 * (1.0 + math.cos(math.pi * tail))
