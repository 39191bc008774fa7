"""Calibrations: recovered from drafts that follow one, written into an adapter, read back with it."""

import random
import shutil
from pathlib import Path

import pytest

from prove_core.decoding.acceptance import Evidence
from prove_core.decoding.calibration import chances, other_chances
from prove_core.decoding.drafts import Drafts
from prove_core.errors import DataError
from prove_core.model.adapters import read_adapter
from prove_core.training.calibration import fit_calibration, train_calibration
from prove_core.training.gate_records import BlockRecord, Candidate, write_records
from prove_core.types import IDENTITY, Alternative, Calibration

ADAPTER = Path(__file__).parents[3] / "prove_core/adapters/smollm2-135m-block8"
TRUE = Calibration(-0.7, 0.6)


def blocks(count: int, calibration: Calibration = TRUE) -> list[BlockRecord]:
    """Blocks whose candidates match with the calibrated chance, as long as those before did; never after that."""
    noise = random.Random(5)
    records = []
    for index in range(count):
        confidences = [noise.random() for _ in range(5)]
        right = True
        candidates = []
        for confidence, chance in zip(confidences, chances(calibration, confidences), strict=True):
            right = right and noise.random() < chance
            candidates.append(Candidate(Evidence(confidence, 0.5, True), right))
        records.append(BlockRecord(index, 0, tuple(candidates)))
    return records


def test_the_identity_changes_nothing() -> None:
    assert chances(IDENTITY, (0.1, 0.5, 0.99)) == pytest.approx((0.1, 0.5, 0.99))
    assert chances(Calibration(3.0, 5e5), (0.0, 0.5, 1.0)) == pytest.approx((0.0, 0.953, 1.0), abs=1e-3)


def test_what_drafts_follow_is_found() -> None:
    fit = fit_calibration(blocks(8000))
    assert (fit.calibration.bias, fit.calibration.slope) == pytest.approx((TRUE.bias, TRUE.slope), abs=0.08)
    assert fit.loss_after < fit.loss_before


def test_few_records_stay_near_confidences_as_they_are() -> None:
    fit = fit_calibration([BlockRecord(0, 0, (Candidate(Evidence(0.9, 0.5, True), True),))])
    assert (fit.calibration.bias, fit.calibration.slope) == pytest.approx((0.0, 1.0), abs=0.3)
    with pytest.raises(DataError, match="candidates"):
        fit_calibration([BlockRecord(0, 0, ())])


def test_it_lands_in_the_adapter(tmp_path: Path) -> None:
    folder = tmp_path / "adapter"
    shutil.copytree(ADAPTER, folder)
    before = read_adapter(str(folder)).record
    write_records(tmp_path / "records.jsonl", blocks(200))
    fit = train_calibration([tmp_path / "records.jsonl"], folder)
    after = read_adapter(str(folder)).record
    assert before is not None
    assert after == before.model_copy(update={"calibration": fit.calibration})


def test_what_a_draft_loses_goes_to_its_alternatives() -> None:
    others = (Alternative(0, (7, 8), (0.3, 0.5)), Alternative(0, (9,), (0.1,)), Alternative(1, (5,), (0.2,)))
    drafts = Drafts((1, 2), (0.6, 0.8), others)
    for calibration in (IDENTITY, Calibration(-0.4, 0.8)):
        likely = chances(calibration, drafts.confidences)
        first, behind, second, last = other_chances(calibration, drafts, likely)
        assert first.chance == pytest.approx(0.75 * (1 - likely[0]))
        assert second.chance == pytest.approx(0.25 * (1 - likely[0]))
        assert last.chance == pytest.approx(1 - likely[1])
        assert behind.chance == pytest.approx(first.chance * chances(calibration, (0.5,))[0])
        assert [other.alternative for other in (first, behind, second, last)] == [0, 0, 1, 2]
    sure = Drafts((1,), (1.0,), (Alternative(0, (2,), (1e-9,)),))
    assert other_chances(IDENTITY, sure, (1.0,))[0].chance == pytest.approx(0.0)
