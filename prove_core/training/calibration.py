"""Fitting what a proposer's confidences come to as chances, on recorded blocks (see `decoding.calibration`).

Each block counts up to its first wrong candidate: a chance is that of a draft given that those before it match.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prove_core.decoding.calibration import log_odds
from prove_core.errors import DataError
from prove_core.model.adapters import read_adapter
from prove_core.training.gate_records import BlockRecord, read_records
from prove_core.training.record import amend_record, check_record
from prove_core.types import IDENTITY, Calibration

Vector = NDArray[np.float64]
RIDGE = 1.0  # pulls towards confidences as they are, where records are few or all of one kind
STEPS = 100
CLOSE = 1e-10  # of the Newton decrement


@dataclass(frozen=True, slots=True)
class CalibrationFit:
    """The fit, the candidates that it rests on, and their mean log loss with confidences as they are and as fitted."""

    calibration: Calibration
    candidates: int
    loss_before: float
    loss_after: float


def train_calibration(records: Sequence[Path], adapter: Path) -> CalibrationFit:
    """Fit on files of records and write the result into the adapter's record.

    Raises DataError for files that cannot be read or written or hold no candidates, CheckpointError for a folder that
    is no adapter.
    """
    folder = read_adapter(str(adapter))
    check_record(folder)
    fit = fit_calibration([record for path in records for record in read_records(path)])
    amend_record(folder, calibration=fit.calibration)
    return fit


def fit_calibration(records: Sequence[BlockRecord]) -> CalibrationFit:
    """The calibration of least log loss, by Newton's method. Deterministic. Raises DataError without candidates."""
    pairs = [pair for record in records for pair in _in_question(record)]
    if not pairs:
        raise DataError("the calibration needs candidates, and the records have none")
    odds = np.array([log_odds(confidence) for confidence, _ in pairs], dtype=np.float64)
    right = np.array([matched for _, matched in pairs], dtype=np.float64)
    rows = np.stack([np.ones_like(odds), odds], axis=1)
    start = np.array([IDENTITY.bias, IDENTITY.slope])
    weights = _newton(rows, right, start)
    bias, slope = weights.tolist()
    before, after = (_loss(rows, right, each) / len(pairs) for each in (start, weights))
    return CalibrationFit(Calibration(bias, slope), len(pairs), before, after)


def _in_question(record: BlockRecord) -> list[tuple[float, bool]]:
    """Confidence and outcome of the candidates up to the first wrong one."""
    pairs = []
    for candidate in record.candidates:
        pairs.append((candidate.evidence.confidence, candidate.right))
        if not candidate.right:
            break
    return pairs


def _newton(rows: Vector, right: Vector, start: Vector) -> Vector:
    """Newton's method on the log loss plus RIDGE / 2 times the squared distance from `start`, with halved steps."""

    def objective(at: Vector) -> float:
        return _loss(rows, right, at) + RIDGE * float(((at - start) ** 2).sum()) / 2

    weights = start
    for _ in range(STEPS):
        chance = 0.5 * (1 + np.tanh(rows @ weights / 2))
        gradient = rows.T @ (chance - right) + RIDGE * (weights - start)
        curvature = (rows.T * (chance * (1 - chance))) @ rows + RIDGE * np.eye(2)
        step: Vector = np.linalg.solve(curvature, gradient).astype(np.float64)
        if float(gradient @ step) < CLOSE:
            break
        share = 1.0
        while share > 1e-9 and objective(weights - share * step) > objective(weights):
            share /= 2
        weights = weights - share * step
    return weights


def _loss(rows: Vector, right: Vector, weights: Vector) -> float:
    logits = rows @ weights
    return float((np.logaddexp(0, logits) - right * logits).sum())
