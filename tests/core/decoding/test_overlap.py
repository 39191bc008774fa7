"""Mode `prove` with both models at work commits what it commits with one after the other."""

from dataclasses import dataclass, field, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.cycle import Ahead, Collect, Request, decode
from prove_core.decoding.overlap import Foresight, foreseen_stops, stop_chances
from prove_core.types import (
    Answer,
    Call,
    Continue,
    Continued,
    DecodingParams,
    FinishReason,
    Gate,
    GateWeights,
    Limits,
    Mode,
    Proposal,
    Propose,
    Reading,
    TokenIds,
    Verify,
)

WEIGHTS = GateWeights(0.5, 0.3, 0.4, 1.0)


@dataclass
class Pair:
    """Two models whose answers depend on their context alone. Of what is begun ahead a share gets lost."""

    seed: int
    lost: float = 0.0
    committed: list[int] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    collected: int = 0

    def _random(self, *context: object) -> Random:
        return Random(repr((self.seed, *context)))

    def proposal(self, context: TokenIds, size: int) -> Proposal:
        rows = [self._random(context, depth) for depth in range(size)]
        return Proposal(tuple(r.randrange(20) for r in rows), tuple(r.random() for r in rows))

    def answer(self, call: Call) -> Answer:
        self.calls.append(call)
        context = tuple(self.committed)
        match call:
            case Propose(size):
                return self.proposal(context, size)
            case Verify(block):
                rows = [self._random("v", context, block[:depth]) for depth in range(len(block) + 1)]
                return Reading(tuple(r.randrange(20) for r in rows), tuple(r.random() for r in rows[:-1]))
            case Continue(block, branches):
                return Continued(
                    tuple(self.proposal((*context, *block[: b.accepted]), b.placeholders + 1) for b in branches)
                )
        raise AssertionError(call)


def run(pair: Pair, params: DecodingParams, limits: Limits) -> tuple[list[int], list[tuple[int, int]], FinishReason]:
    cycles = decode(params, limits)
    answer, ahead = None, None
    steps = []
    while True:
        try:
            item = cycles.send(answer)
        except StopIteration as end:
            return pair.committed, [step for step in steps if step != (0, 0)], end.value
        answer = None
        if isinstance(item, Request):
            answer = pair.answer(item.call)
        elif isinstance(item, Ahead):
            ahead = pair.answer(item.call)
        elif isinstance(item, Collect):
            pair.collected += 1
            answer = ahead if pair._random("lost", pair.collected).random() >= pair.lost else None
        else:
            pair.committed += item.tokens
            steps.append((item.drafted, item.accepted))


@given(
    seed=st.integers(0, 10**6),
    block_size=st.integers(1, 9),
    rows=st.integers(1, 96),
    max_tokens=st.integers(1, 60),
    stop_ids=st.frozensets(st.integers(0, 19), max_size=2),
    gate=st.sampled_from(Gate),
    theta=st.sampled_from([0.0, 0.1, 0.4, 0.6]),
    lost=st.sampled_from([0.0, 0.4]),
)
def test_overlap_changes_no_token(
    seed: int,
    block_size: int,
    rows: int,
    max_tokens: int,
    stop_ids: frozenset[int],
    gate: Gate,
    theta: float,
    lost: float,
) -> None:
    params = DecodingParams(Mode.PROVE, gate, theta, block_size=block_size, gate_weights=WEIGHTS)
    limits = Limits(max_tokens, stop_ids)
    one_after_the_other = run(Pair(seed), params, limits)
    pair = Pair(seed, lost)
    assert run(pair, replace(params, overlap_rows=rows), limits) == one_after_the_other
    for call in pair.calls:
        if isinstance(call, Continue):
            assert 1 + len(call.block) + sum(branch.placeholders for branch in call.branches) <= rows


def test_with_rows_for_every_stop_the_proposer_is_never_waited_for() -> None:
    params = DecodingParams(Mode.PROVE, Gate.VERIFIER, 0.3, block_size=5, overlap_rows=5 + 5 * 4)
    pair = Pair(3)
    run(pair, params, Limits(80))
    assert [type(call) for call in pair.calls[:1]] == [Propose]
    assert not any(isinstance(call, Propose) for call in pair.calls[1:])
    assert pair.collected >= 10


def test_stops_that_the_gate_cannot_pass_are_known() -> None:
    """c * v > theta needs c > theta: behind such a candidate nothing is proposed."""
    params = DecodingParams(Mode.PROVE, theta=0.2, block_size=4, overlap_rows=96)
    branches = foreseen_stops(params, (1, 2, 3), (0.9, 0.2, 0.9), 50, Foresight())
    assert [branch.accepted for branch in branches] == [0, 1]
    assert all(branch.placeholders == 3 for branch in branches)


def test_the_likeliest_stops_come_first() -> None:
    params = DecodingParams(Mode.PROVE, theta=0.01, block_size=4, overlap_rows=1 + 3 + 3)
    sure = foreseen_stops(params, (1, 2, 3), (0.99, 0.99, 0.99), 50, Foresight())
    torn = foreseen_stops(params, (1, 2, 3), (0.99, 0.1, 0.99), 50, Foresight(rejected=1.0, doubts=1.0))
    assert ([branch.accepted for branch in sure], [branch.accepted for branch in torn]) == ([3], [1])


@given(room=st.integers(1, 12), block_size=st.integers(2, 8))
def test_no_block_reaches_beyond_the_budget(room: int, block_size: int) -> None:
    params = DecodingParams(Mode.PROVE, theta=0.0, block_size=block_size, overlap_rows=96)
    block = tuple(range(min(block_size, room + 1) - 1))
    for branch in foreseen_stops(params, block, (0.5,) * len(block), room, Foresight()):
        assert branch.accepted + 1 + branch.placeholders <= room


@pytest.mark.parametrize("accepted", [0, 1, 3])
def test_the_gate_is_learnt_from_what_it_did(accepted: int) -> None:
    params = DecodingParams(Mode.PROVE, theta=0.01)
    foresight = Foresight()
    for _ in range(40):
        foresight = foresight.judged((0.5, 0.5, 0.5), accepted)
    passed = 1.0 if accepted == 3 else accepted / (accepted + 1)
    assert foresight.chance(params, 0.5) == pytest.approx(passed, abs=0.02)


@given(st.lists(st.floats(0.0, 1.0), max_size=8))
def test_verification_stops_somewhere(confidences: list[float]) -> None:
    stops = stop_chances(confidences)
    assert len(stops) == len(confidences) + 1
    assert sum(stops) == pytest.approx(1.0)
    assert all(chance >= -1e-12 for chance in stops)
