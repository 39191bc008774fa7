"""Figures of gates: the logistic gate never judges what it was fitted on, and every figure is what its name says."""

import random
from dataclasses import replace

import pytest

from prove_core.decoding.acceptance import Evidence, gated_length, logistic_score
from prove_core.errors import DataError
from prove_core.evaluation.gate_figures import GRID, cross_weights, replay, replay_figures
from prove_core.training.gate import fit_gate
from prove_core.training.gate_records import BlockRecord, Candidate
from prove_core.types import DecodingParams, Gate, GateWeights, Mode

TRUE = GateWeights(bias=1.0, log_confidence=0.5, log_probability=1.0, agrees=1.5)


@pytest.fixture(scope="module")
def records() -> list[BlockRecord]:
    """Blocks of 8 prompts whose labels follow a known gate."""
    rng = random.Random(0)
    drawn = []
    for index in range(240):
        seen = [Evidence(rng.random() ** 0.3, rng.random(), rng.random() < 0.7) for _ in range(7)]
        candidates = tuple(Candidate(each, rng.random() < logistic_score(TRUE, each)) for each in seen)
        drawn.append(BlockRecord(index // 30, index, candidates))
    return drawn


def by_hand(records: list[BlockRecord], params: DecodingParams) -> tuple[float, float]:
    """Tokens per cycle and non-AR share."""
    lengths = [gated_length(params, [each.evidence for each in record.candidates]) for record in records]
    tokens = len(records) + sum(lengths)
    wrong = sum(not c.right for r, n in zip(records, lengths, strict=True) for c in r.candidates[:n])
    return tokens / len(records), wrong / tokens


def test_each_half_is_judged_by_the_other_halfs_fit(records: list[BlockRecord]) -> None:
    even, odd = ([r for r in records if r.prompt % 2 == parity] for parity in (0, 1))
    for_even, for_odd = cross_weights(records)
    assert (for_even, for_odd) == (fit_gate(odd), fit_gate(even))
    flipped = [replace(r, candidates=tuple(replace(c, right=not c.right) for c in r.candidates)) for r in even]
    assert cross_weights([*flipped, *odd])[0] == for_even, "their own labels change nothing"
    scores = [score for block in replay(records, (for_even, for_odd)).blocks[Gate.LOGISTIC] for score, _ in block]
    expected = [logistic_score(for_even, c.evidence) for r in even for c in r.candidates]
    assert scores == expected + [logistic_score(for_odd, c.evidence) for r in odd for c in r.candidates]


def test_figures_are_those_of_the_rules(records: list[BlockRecord]) -> None:
    done = replay(records, (TRUE, TRUE))
    figures, samples = replay_figures(done, [0.01, 0.3], 0.9)
    named = {
        "replay_mars_tau0.9": DecodingParams(Mode.PROVE, Gate.CONFIDENCE, 0.9),
        "replay_prove_theta0.01": DecodingParams(Mode.PROVE, Gate.PRODUCT, 0.01),
        "replay_prove_theta0.3": DecodingParams(Mode.PROVE, Gate.PRODUCT, 0.3),
    }
    for name, params in named.items():
        found = (figures[f"{name}_tokens_per_cycle"], figures[f"{name}_non_ar_share"])
        assert found == pytest.approx(by_hand(records, params)), name
    for gate in Gate:
        for index, threshold in enumerate(GRID):
            found = (samples[f"curve_tokens_per_cycle_{gate}"][index], samples[f"curve_non_ar_share_{gate}"][index])
            params = DecodingParams(Mode.PROVE, gate, threshold, gate_weights=TRUE)
            assert found == pytest.approx(by_hand(records, params)), (gate, threshold)
        assert sum(samples[f"calibration_count_{gate}"]) == 240 * 7
        matched = DecodingParams(Mode.PROVE, gate, figures[f"replay_{gate}_at_mars_error_theta"], gate_weights=TRUE)
        tokens, share = by_hand(records, matched)
        assert share <= figures["replay_mars_tau0.9_non_ar_share"]
        assert tokens == pytest.approx(figures[f"replay_{gate}_at_mars_error_tokens_per_cycle"], abs=0.05)
    assert figures["auc_logistic"] == max(figures[f"auc_{gate}"] for gate in Gate), "labels were drawn from it"
    assert figures["calibration_error_logistic"] < 0.05
    assert figures["auc_to_first_wrong_logistic"] != figures["auc_logistic"]


def test_halves_without_errors_cannot_be_fitted(records: list[BlockRecord]) -> None:
    with pytest.raises(DataError, match="right and wrong"):
        cross_weights([record for record in records if record.prompt == 0])
