"""Do exact ways of decoding give the same ids as `ar`? And where not, was it a matter of rounding?"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prove_core.engine.engine import Engine
from prove_core.evaluation.forced import read_forced
from prove_core.types import TokenIds
from services.benchmarks.decoding import Task

# Nats between two choices that rounding may swap: in the 16-bit formats twice the spacing of logits from 16 to 32.
NEAR_TIE: Mapping[str, float] = {"float32": 1e-3, "float16": 0.03, "bfloat16": 0.25}


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of `completions`, how many differ from their reference, and how many of those at a near-tie first."""

    completions: int
    different: int
    near_ties: int

    def __add__(self, other: "Agreement") -> "Agreement":
        return Agreement(
            self.completions + other.completions,
            self.different + other.different,
            self.near_ties + other.near_ties,
        )


def first_difference(a: TokenIds, b: TokenIds) -> int | None:
    """Index of the first token that is not the same in both, or that only one of them has; None if they are equal."""
    if a == b:
        return None
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class Judge:
    """Compares completions with the references of their tasks, and asks the model about each difference once."""

    def __init__(self, engine: Engine, tasks: Sequence[Task], references: Sequence[TokenIds], dtype: str) -> None:
        self._engine = engine
        self._tasks = tasks
        self._references = references
        self._near = NEAR_TIE[dtype]
        self._gaps: dict[tuple[int, TokenIds], float] = {}

    def agreement(self, outputs: Sequence[TokenIds]) -> Agreement:
        """Of completions of the tasks in order, all of them perhaps more than once. Raises what the engine answers."""
        pairs = [(index % len(self._tasks), output) for index, output in enumerate(outputs)]
        different = [pair for pair in pairs if pair[1] != self._references[pair[0]]]
        ties = sum(self.gap(*pair) <= self._near for pair in different)
        return Agreement(len(pairs), len(different), ties)

    def gap(self, index: int, output: TokenIds) -> float:
        """Nats between what a completion of task `index` first has otherwise and its reference's choice there."""
        key = index, output
        if key not in self._gaps:
            self._gaps[key] = self._ask(index, self._references[index], output)
        return self._gaps[key]

    def _ask(self, index: int, reference: TokenIds, output: TokenIds) -> float:
        at = first_difference(reference, output)
        if at is None:
            return 0.0
        return abs(self._log_probability(index, reference, at) - self._log_probability(index, output, at))

    def _log_probability(self, index: int, output: TokenIds, at: int) -> float:
        """Of the completion's token at `at`; where it has ended, of the likeliest id that ends it."""
        prompt, limits = self._tasks[index]
        choices = (output[at],) if at < len(output) else tuple(limits.stop_ids)
        text = prompt + output[:at]
        read = (read_forced(self._engine, "bench-gap", text, (token,)).probabilities[0] for token in choices)
        return math.log(max(sys.float_info.min, *read))
