"""Fitting the logistic gate: which of a block's candidates are the proposer's own AR tokens, from what a gate sees.

A ridge-regularised logistic regression of `Candidate.right` on `acceptance.features`, by Newton's method in float64.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prove_core.decoding.acceptance import features, gate_score
from prove_core.decoding.gate_file import write_gate
from prove_core.errors import DataError
from prove_core.training.auc import auc
from prove_core.training.gate_records import BlockRecord, Candidate, read_records
from prove_core.types import Gate, GateWeights

RIDGE = 1.0  # on all weights but the bias; keeps them finite where a feature separates right from wrong
HELD_OUT = 5  # every fifth prompt judges the fit and has no part in it
STEPS = 100
CLOSE = 1e-10  # of the Newton decrement, where the objective is as low as float64 shows

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class GateFit:
    """`weights` fitted on most prompts; `auc` by gate, `logistic` included, on the candidates of the others.

    `blocks` and `candidates` count both parts.
    """

    weights: GateWeights
    auc: dict[str, float]
    blocks: int
    candidates: int


def train_gate(records: Sequence[Path], out: Path) -> GateFit:
    """Fit the gate on files of records and write `out`, a gate file with the fit's figures beside its weights.

    Every fifth prompt is held out, and the AUCs are of its candidates. The same number in two files is two prompts.
    Raises DataError naming the file for what cannot be read or written, and for records that cannot be fitted or
    judged: fewer than two prompts, or a part in which all candidates are right or all are wrong.
    """
    fitted, held_out = _split([read_records(path) for path in records])
    weights = fit_gate(fitted)
    judged = candidates_of(held_out)
    fit = GateFit(
        weights=weights,
        auc={gate.value: auc_of(gate, judged, weights) for gate in Gate},
        blocks=len(fitted) + len(held_out),
        candidates=len(candidates_of(fitted)) + len(judged),
    )
    write_gate(out, weights, {name: value for name, value in asdict(fit).items() if name != "weights"})
    return fit


def fit_gate(records: Sequence[BlockRecord]) -> GateWeights:
    """The weights that minimise the negative log-likelihood plus RIDGE / 2 times the squares of all but the bias.

    Deterministic. Raises DataError when all candidates are right, all are wrong, or there are none.
    """
    candidates = candidates_of(records)
    right = np.array([candidate.right for candidate in candidates], dtype=np.float64)
    if len(set(right.tolist())) < 2:
        raise DataError(f"the gate needs right and wrong candidates; of {len(right)}, {int(right.sum())} are right")
    rows = np.array([(1.0, *features(candidate.evidence)) for candidate in candidates], dtype=np.float64)
    bias, log_confidence, log_probability, agrees = _newton(rows, right).tolist()
    return GateWeights(bias, log_confidence, log_probability, agrees)


def candidates_of(records: Sequence[BlockRecord]) -> list[Candidate]:
    """The candidates of all blocks."""
    return [candidate for record in records for candidate in record.candidates]


def auc_of(gate: Gate, candidates: Sequence[Candidate], weights: GateWeights | None = None) -> float:
    """How well a gate's score tells right candidates from wrong ones. Raises DataError when all are of one kind."""
    scores = [gate_score(gate, candidate.evidence, weights) for candidate in candidates]
    return auc(scores, [candidate.right for candidate in candidates])


def _split(files: Sequence[Sequence[BlockRecord]]) -> tuple[list[BlockRecord], list[BlockRecord]]:
    """Records to fit on, and those of every `HELD_OUT`-th prompt, by order of appearance."""
    by_prompt: dict[tuple[int, int], list[BlockRecord]] = {}
    for number, records in enumerate(files):
        for record in records:
            by_prompt.setdefault((number, record.prompt), []).append(record)
    if len(by_prompt) < 2:
        raise DataError(f"a gate is fitted on some prompts and judged on others; there are {len(by_prompt)}")
    parts: tuple[list[BlockRecord], list[BlockRecord]] = ([], [])
    for index, records in enumerate(by_prompt.values()):
        parts[index % HELD_OUT == 0].extend(records)
    return parts


def _newton(rows: Vector, right: Vector) -> Vector:
    """Newton's method with halved steps, so that every step lowers the (strictly convex) objective."""
    ridge = np.full(rows.shape[1], RIDGE)
    ridge[0] = 0.0
    weights: Vector = np.zeros(rows.shape[1])
    for _ in range(STEPS):
        chance = 0.5 * (1 + np.tanh(rows @ weights / 2))
        gradient = rows.T @ (chance - right) + ridge * weights
        curvature = (rows.T * (chance * (1 - chance))) @ rows + np.diag(ridge)
        step: Vector = np.linalg.solve(curvature, gradient).astype(np.float64)
        decrement = float(gradient @ step)
        if decrement < CLOSE:
            break
        weights = _lowered(rows, right, ridge, weights, step, decrement)
    return weights


def _lowered(rows: Vector, right: Vector, ridge: Vector, weights: Vector, step: Vector, decrement: float) -> Vector:
    """`weights` less the largest of step, step / 2, step / 4 ... that lowers the objective enough (Armijo's rule)."""
    before, share = _objective(rows, right, ridge, weights), 1.0
    while share > 1e-9 and _objective(rows, right, ridge, weights - share * step) > before - 1e-4 * share * decrement:
        share /= 2
    return weights - share * step


def _objective(rows: Vector, right: Vector, ridge: Vector, weights: Vector) -> float:
    logits = rows @ weights
    return float((np.logaddexp(0, logits) - right * logits).sum() + (ridge * weights**2).sum() / 2)
