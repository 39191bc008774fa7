"""Curves against committing every block by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.acceptance import Evidence, gated_length
from prove_core.evaluation.gate_curves import Curve, calibration, calibration_error, curve, scored, until_wrong
from prove_core.training.gate_records import BlockRecord, Candidate
from prove_core.types import DecodingParams, Gate, Mode

SCORES = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1)
CANDIDATES = st.builds(Candidate, st.builds(Evidence, SCORES, SCORES, st.booleans()), st.booleans())
BLOCKS = st.builds(BlockRecord, st.just(0), st.just(1), st.lists(CANDIDATES, max_size=6).map(tuple))
RECORDS = st.lists(BLOCKS, min_size=1, max_size=8)


def confidence(seen: Evidence) -> float:
    return seen.confidence


def by_hand(records: list[BlockRecord], threshold: float) -> tuple[int, int]:
    """Committed tokens and the non-AR ones among them."""
    params = DecodingParams(Mode.PROVE, Gate.CONFIDENCE, threshold)
    tokens = wrong = 0
    for record in records:
        accepted = gated_length(params, [each.evidence for each in record.candidates])
        tokens += 1 + accepted
        wrong += sum(not each.right for each in record.candidates[:accepted])
    return tokens, wrong


@given(RECORDS, SCORES)
def test_a_threshold_commits_what_the_gate_commits(records: list[BlockRecord], threshold: float) -> None:
    tokens, wrong = by_hand(records, threshold)
    point = curve(scored(records, confidence)).at(threshold)
    assert point.tokens_per_cycle == pytest.approx(tokens / len(records))
    assert point.non_ar_share == pytest.approx(wrong / tokens)


@given(RECORDS, st.floats(0, 1))
def test_no_threshold_within_the_share_commits_more(records: list[BlockRecord], share: float) -> None:
    found = curve(scored(records, confidence)).at_share(share)
    levels = {0.0, *(each.evidence.confidence for record in records for each in record.candidates)}
    within = [tokens for tokens, wrong in (by_hand(records, level) for level in levels) if wrong <= share * tokens]
    assert found.tokens_per_cycle * len(records) >= max([len(records), *within]) - 1e-9
    assert found.non_ar_share <= share + 1e-9
    tokens, wrong = by_hand(records, found.threshold)
    assert wrong <= share * tokens, "the threshold that it names keeps within the share"


def test_between_two_thresholds_blocks_are_mixed() -> None:
    between = Curve(blocks=10, levels=(0.9, 0.5), committed=(10, 20), wrong=(0, 6))
    half = between.at_share(0.12)  # half the blocks at each: 25 tokens, 3 of them wrong
    assert (half.tokens_per_cycle, half.non_ar_share, half.threshold) == (2.5, 0.12, 0.5)
    assert between.at_share(1.0).tokens_per_cycle == 3.0
    assert between.at_share(0.0).tokens_per_cycle == 2.0


SCORED = st.tuples(SCORES, st.booleans())


@given(st.lists(SCORED, min_size=1, max_size=30), st.integers(1, 12))
def test_calibration_bins_hold_every_candidate_once(candidates: list[tuple[float, bool]], bins: int) -> None:
    parts = calibration(candidates, bins)
    assert sum(part.count for part in parts) == len(candidates)
    assert sum(part.count * part.right_share for part in parts) == pytest.approx(sum(right for _, right in candidates))
    assert sum(part.count * part.mean_score for part in parts) == pytest.approx(sum(score for score, _ in candidates))
    assert 0 <= calibration_error(parts) <= 1


def test_a_score_that_is_a_probability_has_no_calibration_error() -> None:
    assert calibration_error(calibration([(0.75, i % 4 != 0) for i in range(8)])) == 0
    assert calibration_error(calibration([(1.0, i % 2 == 0) for i in range(8)])) == 0.5


@given(st.lists(SCORED, max_size=8))
def test_what_counts_before_an_error_ends_with_it(block: list[tuple[float, bool]]) -> None:
    expected = []
    for candidate in block:
        expected.append(candidate)
        if not candidate[1]:
            break
    assert until_wrong(block) == expected
