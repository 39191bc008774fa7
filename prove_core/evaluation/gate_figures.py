"""Every gate judged on recorded blocks: AUC, calibration, and tokens per cycle against non-AR tokens.

The logistic gate is judged on prompts it was not fitted on: weights are fitted on the even prompts for the odd ones and
the other way round, unless they are given.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from prove_core.decoding.acceptance import gate_score
from prove_core.evaluation.gate_curves import (
    Curve,
    Point,
    ScoredBlock,
    calibration,
    calibration_error,
    curve,
    scored,
    until_wrong,
)
from prove_core.training.auc import auc
from prove_core.training.gate import fit_gate
from prove_core.training.gate_records import BlockRecord
from prove_core.types import Gate, GateWeights

GRID = (0.0, 0.001, 0.003, 0.01, 0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)

Figures = dict[str, float]
Samples = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Replay:
    """The recorded blocks with each gate's scores."""

    blocks: Mapping[Gate, Sequence[ScoredBlock]]
    curves: Mapping[Gate, Curve]

    def mars(self, tau: float) -> Point:
        """The MARS rule c_i > tau: the gate `confidence`, which needs no verifier."""
        return self.curves[Gate.CONFIDENCE].at(tau)

    def matched(self, gate: Gate, tau: float) -> Point:
        """A gate at the non-AR share of MARS at `tau`."""
        return self.curves[gate].at_share(self.mars(tau).non_ar_share)


def cross_weights(records: Sequence[BlockRecord]) -> tuple[GateWeights, GateWeights]:
    """Weights for even and for odd prompts, each fitted on the others. Raises DataError as `fit_gate`."""
    even, odd = _halves(records)
    return fit_gate(odd), fit_gate(even)


def replay(records: Sequence[BlockRecord], weights: tuple[GateWeights, GateWeights]) -> Replay:
    """Score at least one block with every gate; `weights` for even and odd prompts."""
    halves = _halves(records)
    blocks = {
        gate: [
            block
            for half, own in zip(halves, weights, strict=True)
            for block in scored(half, partial(gate_score, gate, weights=own))
        ]
        for gate in Gate
    }
    return Replay(blocks, {gate: curve(each) for gate, each in blocks.items()})


def replay_figures(done: Replay, thetas: Sequence[float], tau: float) -> tuple[Figures, Samples]:
    """Flat figures, and what they stand for: curves at `GRID` and calibration bins.

    `*_at_mars_error_*`: the gate at the non-AR share of MARS at `tau`. Raises DataError when all candidates are right
    or all are wrong.
    """
    figures = _point("replay_mars_tau", done.mars(tau))
    samples: Samples = {"curve_thresholds": list(GRID)}
    for theta in thetas:
        figures |= _point("replay_prove_theta", done.curves[Gate.PRODUCT].at(theta))
    for gate, blocks in done.blocks.items():
        candidates = list(chain.from_iterable(blocks))
        bins = calibration(candidates)
        figures[f"auc_{gate}"] = _auc(candidates)
        figures[f"auc_to_first_wrong_{gate}"] = _auc(list(chain.from_iterable(map(until_wrong, blocks))))
        figures[f"calibration_error_{gate}"] = calibration_error(bins)
        matched = done.matched(gate, tau)
        figures[f"replay_{gate}_at_mars_error_tokens_per_cycle"] = matched.tokens_per_cycle
        figures[f"replay_{gate}_at_mars_error_theta"] = matched.threshold
        points = [done.curves[gate].at(threshold) for threshold in GRID]
        samples[f"curve_tokens_per_cycle_{gate}"] = [point.tokens_per_cycle for point in points]
        samples[f"curve_non_ar_share_{gate}"] = [point.non_ar_share for point in points]
        samples[f"calibration_score_{gate}"] = [part.mean_score for part in bins]
        samples[f"calibration_right_{gate}"] = [part.right_share for part in bins]
        samples[f"calibration_count_{gate}"] = [float(part.count) for part in bins]
    return figures, samples


def _point(prefix: str, point: Point) -> Figures:
    name = f"{prefix}{point.threshold:g}"
    return {f"{name}_tokens_per_cycle": point.tokens_per_cycle, f"{name}_non_ar_share": point.non_ar_share}


def _auc(candidates: ScoredBlock) -> float:
    return auc([score for score, _ in candidates], [right for _, right in candidates])


def _halves(records: Sequence[BlockRecord]) -> tuple[list[BlockRecord], list[BlockRecord]]:
    return [r for r in records if r.prompt % 2 == 0], [r for r in records if r.prompt % 2]
