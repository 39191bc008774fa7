"""What sampling must do, slowly and by the book, for tests of what does it fast."""

import math
from collections import Counter
from collections.abc import Sequence

from prove_core.types import SamplingParams


def penalized(row: Sequence[float], tokens: Sequence[int], how: SamplingParams) -> list[float]:
    """A row of logits under vLLM's penalties and biases, id by id; `tokens` come before what it predicts."""
    generated = tokens[how.prompt_length :]
    biases = dict(how.logit_bias)
    adjusted = []
    for token, logit in enumerate(row):
        value = logit
        if token in tokens:
            value = value / how.repetition_penalty if value > 0 else value * how.repetition_penalty
        value -= how.frequency_penalty * generated.count(token)
        value -= how.presence_penalty * (token in generated)
        adjusted.append(value + biases.get(token, 0.0))
    return adjusted


def warped(logits: Sequence[float], how: SamplingParams) -> list[float]:
    """Probabilities under temperature, then top_k, top_p and min_p, one after another."""
    top = max(logits)
    weights = {i: math.exp((value - top) / how.temperature) for i, value in enumerate(logits) if value != -math.inf}
    if how.top_k:
        kth = sorted(weights.values(), reverse=True)[: how.top_k][-1]
        weights = {i: weight for i, weight in weights.items() if weight >= kth}
    total, before, least_weight = sum(weights.values()), 0.0, 0.0
    for weight in sorted(weights.values(), reverse=True):
        if before < how.top_p:
            least_weight = weight
        before += weight / total
    weights = {i: w for i, w in weights.items() if w >= least_weight and w >= how.min_p * max(weights.values())}
    return [weights.get(i, 0.0) / sum(weights.values()) for i in range(len(logits))]


def chi_square(values: Sequence[int], expected: Sequence[float]) -> tuple[float, int]:
    """Statistic of how often 0, 1, ... stand among `values`, and its degrees of freedom."""
    counts = Counter(values)
    if any(share == 0 and counts[cell] for cell, share in enumerate(expected)):
        return math.inf, 1
    cells = [(counts[cell], share) for cell, share in enumerate(expected) if share]
    return sum((count - share) ** 2 / share for count, share in cells), len(cells) - 1


def fits(statistic: float, freedom: int) -> bool:
    """Whether chi-square is below its quantile at about 1 - 1e-5 (Wilson and Hilferty)."""
    spread = 2 / (9 * max(freedom, 1))
    return statistic < max(freedom, 1) * (1 - spread + 4.27 * spread**0.5) ** 3
