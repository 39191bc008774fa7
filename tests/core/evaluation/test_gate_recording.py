"""Recording and on-policy counts on engines whose every token can be worked out by hand."""

from collections.abc import Sequence

import pytest

from prove_core.decoding.acceptance import gated_length
from prove_core.engine.local import complete
from prove_core.errors import PoolExhausted
from prove_core.evaluation.gate_recording import record_blocks
from prove_core.evaluation.on_policy import Outcome, decode_and_judge, total
from prove_core.types import DecodingParams, Gate, GateWeights, GenerateRequest, Limits, Mode, Role, Step
from tests.core.engine.harness import engine_config, running
from tests.core.toy import ToyRunner, continuation

PROMPT = (5, 6, 7)
BLOCK = 6
ALL = DecodingParams(Mode.PROVE, Gate.PRODUCT, theta=0.0, block_size=BLOCK)


class Other(ToyRunner):
    """A verifier that takes every third token for another one."""

    @staticmethod
    def next_token(context: Sequence[int], banned: Sequence[int] = (), seed: int | None = None) -> int:
        token = ToyRunner.next_token(context, banned, seed)
        return (token + 1) % 50 if token % 3 == 0 else token


def test_every_anchor_is_a_block_with_the_truth_about_each_candidate() -> None:
    with running(ToyRunner(4, luck=0.6)) as proposer, running(Other(4)) as verifier:
        engines = {Role.PROPOSER: proposer, Role.VERIFIER: verifier}
        records = record_blocks(engines, 3, PROMPT, Limits(20), BLOCK, 2)
    assert [record.anchor for record in records] == list(range(3, 23, 2))
    assert {record.prompt for record in records} == {3}
    assert all(len(record.candidates) == BLOCK - 1 for record in records)
    candidates = [candidate for record in records for candidate in record.candidates]
    assert 0.3 < sum(candidate.right for candidate in candidates) / len(candidates) < 0.9
    # the toy verifier gives its own argmax 0.9 and anything else 0.001
    assert all(each.evidence.probability == (0.9 if each.evidence.agrees else 0.001) for each in candidates)
    assert 0.1 < sum(each.evidence.agrees and each.right for each in candidates) / len(candidates) < 0.8
    assert any(each.right and not each.evidence.agrees for each in candidates), "where the verifier errs"


def test_blocks_end_with_their_first_stop_token_as_in_decoding() -> None:
    answer = continuation(PROMPT, 12)
    stop = answer[9]
    assert stop not in answer[:9]
    with running(ToyRunner(4, luck=1.0)) as engine:
        engines = {Role.PROPOSER: engine, Role.VERIFIER: engine}
        records = record_blocks(engines, 0, PROMPT, Limits(30, frozenset({stop})), BLOCK, 1)
    assert [len(record.candidates) for record in records] == [min(BLOCK - 1, 9 - i) for i in range(9)]
    assert all(candidate.right and candidate.evidence.agrees for record in records for candidate in record.candidates)


def test_what_is_recorded_is_what_decoding_decides_on() -> None:
    """The first block of a trajectory is the first cycle of mode `prove`: the same draws, the same decision."""
    params = DecodingParams(Mode.PROVE, Gate.PRODUCT, theta=0.2, block_size=BLOCK)
    for seed in range(5):
        with running(ToyRunner(4, seed=seed)) as proposer, running(Other(4)) as verifier:
            engines = {Role.PROPOSER: proposer, Role.VERIFIER: verifier}
            (record,) = record_blocks(engines, 0, PROMPT, Limits(1), BLOCK, 1)
        with running(ToyRunner(4, seed=seed)) as proposer, running(Other(4)) as verifier:
            engines = {Role.PROPOSER: proposer, Role.VERIFIER: verifier}
            list(complete(engines, GenerateRequest("a", PROMPT, DecodingParams(Mode.AR), Limits(1))))
            events = list(complete(engines, GenerateRequest("b", PROMPT, params, Limits(BLOCK))))
        step = next(event for event in events if isinstance(event, Step) and event.drafted)
        assert step.accepted == gated_length(params, [each.evidence for each in record.candidates])


def test_exact_modes_have_no_other_tokens_and_trusting_ones_those_that_were_wrong() -> None:
    limits = Limits(60)
    with running(ToyRunner(4, luck=0.6)) as proposer, running(Other(4)) as verifier:
        engines = {Role.PROPOSER: proposer, Role.VERIFIER: verifier}
        exact = decode_and_judge(engines, "a", PROMPT, DecodingParams(Mode.LOSSLESS, block_size=BLOCK), limits)
        greedy = decode_and_judge(engines, "b", PROMPT, DecodingParams(Mode.AR), limits)
        trusting = decode_and_judge(engines, "c", PROMPT, ALL, limits)
    assert greedy == Outcome(60, 60, 60, 0, 60, 0)
    assert (exact.tokens, exact.non_ar) == (60, 0)
    assert 10 < exact.cycles < 60
    assert (trusting.tokens, trusting.cycles, trusting.verifier_passes) == (60, 10, 10)
    assert 5 < trusting.non_ar < 40
    assert total([greedy, trusting]) == Outcome(120, 70, 70, 10, 120, trusting.non_ar)


def test_a_gate_that_only_asks_whether_the_verifier_agrees_is_exact_with_the_proposer_as_verifier() -> None:
    weights = GateWeights(bias=-5.0, log_confidence=0.0, log_probability=0.0, agrees=10.0)
    params = DecodingParams(Mode.PROVE, Gate.LOGISTIC, theta=0.5, block_size=BLOCK, gate_weights=weights)
    with running(ToyRunner(4, luck=0.6)) as engine:
        gated = decode_and_judge(dict.fromkeys(Role, engine), "a", PROMPT, params, Limits(60))
    assert (gated.tokens, gated.non_ar) == (60, 0)
    assert 10 < gated.cycles < 60


def test_a_wrong_end_is_a_decision_like_any_other() -> None:
    class Hasty(ToyRunner):
        """Proposes a stop for every placeholder."""

        def run(self, windows: object) -> object:  # type: ignore[override]
            output = super().run(windows)  # type: ignore[arg-type]
            for window, rows in zip(windows, output.outputs, strict=True):  # type: ignore[call-overload]
                if window.placeholders:
                    object.__setattr__(rows, "drafts", (49,) * window.placeholders)
            return output

    assert 49 not in continuation(PROMPT, 3)
    with running(Hasty(4)) as proposer, running(ToyRunner(4)) as verifier:  # type: ignore[arg-type]
        engines = {Role.PROPOSER: proposer, Role.VERIFIER: verifier}
        hasty = decode_and_judge(engines, "a", PROMPT, ALL, Limits(30, frozenset({49})))
    assert (hasty.tokens, hasty.judged, hasty.non_ar) == (1, 2, 1)


def test_an_engine_that_fails_leaves_no_session_in_the_other() -> None:
    with running(ToyRunner(4)) as proposer, running(ToyRunner(4), engine_config(tokens=16)) as verifier:
        engines = {Role.PROPOSER: proposer, Role.VERIFIER: verifier}
        with pytest.raises(PoolExhausted):
            record_blocks(engines, 0, PROMPT, Limits(30), BLOCK, 1)
