"""Commit boundaries, in every mode, with scripted models of a target and of a proposer that guesses."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.cycle import Request, decode
from prove_core.model.path import match_length, taken_path
from prove_core.types import (
    Alternative,
    Alternatives,
    Answer,
    DecodingParams,
    Draft,
    Drafted,
    FinishReason,
    Fuse,
    Fused,
    Limits,
    Mode,
    Proposal,
    Propose,
    Reading,
    Role,
    Step,
    TokenIds,
    Verify,
)

STOP = 99
PROMPT_END = 0


@dataclass
class Script:
    """A target that continues with `target`, and a proposer (or drafter) that guesses `guesses[position]`."""

    target: Sequence[int]
    guess: Callable[[int], int]
    position: int = 0
    others: Callable[[int], int | None] = lambda _: None
    """An alternative to the guess for a position, which goes on with the target's next token."""

    def alternatives(self, at: int, count: int) -> Alternatives:
        """To the `count` guesses for positions from `at` on."""
        firsts = [(i, other) for i in range(count) if (other := self.others(at + i)) is not None]
        return tuple(Alternative(i, (first, self.target[at + i + 1]), (0.9, 0.9)) for i, first in firsts)

    def behind(self, at: int, block: TokenIds, alternatives: Alternatives) -> tuple[TokenIds, ...]:
        """What the target says in alternatives to a block at `at`."""

        def after(path: Sequence[int]) -> int:
            right = list(path) == list(self.target[at : at + len(path)])
            return self.target[at + len(path)] if right else 66

        return tuple(
            tuple(after([*block[: other.accepted], *other.tokens[: i + 1]]) for i in range(len(other.tokens)))
            for other in alternatives
        )

    def answer(self, request: Request) -> Answer:
        """The answer to `request` when `position` target tokens are committed."""
        at = self.position
        match request.call:
            case Propose(size):
                tokens = (self.target[at], *(self.guess(at + i) for i in range(1, size)))
                return Proposal(tokens, (0.5,) * size, alternatives=self.alternatives(at + 1, size - 1))
            case Verify(block, alternatives):
                argmax = [self.target[at + i] for i in range(len(block) + 1)]
                good = [0.9 if t == d else 0.0 for t, d in zip(argmax, block, strict=False)]
                return Reading(tuple(argmax), tuple(good), behind=self.behind(at, block, alternatives))
            case Fuse(block, branches, alternatives):
                argmax = [self.target[at + i] for i in range(len(block) + 1)]
                behind = self.behind(at, block, alternatives)
                _, accepted, _ = taken_path(block, argmax, alternatives, behind)
                matched = match_length(block, argmax)
                known = accepted - matched
                rows = next((b.placeholders for b in branches if b.accepted == matched), 0)
                first, count = at + accepted + 1, max(0, rows - known)
                drafts = tuple(self.guess(first + i) for i in range(count))
                return Fused(tuple(argmax), drafts, (0.5,) * count, (), behind, self.alternatives(first, count))
            case Draft(length):
                return Drafted(tuple(self.guess(at + i) for i in range(length)))


@dataclass
class Run:
    tokens: list[int]
    steps: list[Step]
    requests: list[Request]
    reason: FinishReason

    @property
    def cycles(self) -> int:
        return sum(step.cost.cycles for step in self.steps)


def run(script: Script, params: DecodingParams, limits: Limits) -> Run:
    cycles = decode(params, limits)
    tokens: list[int] = []
    steps: list[Step] = []
    requests: list[Request] = []
    answer: Answer | None = None
    while True:
        try:
            item = cycles.send(answer)
        except StopIteration as end:
            return Run(tokens, steps, requests, end.value)
        if isinstance(item, Step):
            steps.append(item)
            tokens += item.tokens
            script.position = len(tokens)
            answer = None
        else:
            requests.append(item)
            answer = script.answer(item)


def perfect(target: Sequence[int]) -> Script:
    padded = [*target, *range(1000, 1100)]
    return Script(padded, lambda i: padded[i])


EXACT = [Mode.AR, Mode.LOSSLESS, Mode.FUSED, Mode.SPECULATIVE]
TRUSTING = [DecodingParams(mode, tau=0.1, theta=0.1, block_size=8, draft_length=6) for mode in Mode]


@pytest.mark.parametrize("params", TRUSTING, ids=lambda p: p.mode)
def test_cap_and_stop_in_one_commit(params: DecodingParams) -> None:
    limits = Limits(5, frozenset({STOP}))
    done = run(perfect([10, 11, STOP, 20, 21, 22]), params, limits)
    assert (done.tokens, done.reason) == ([10, 11], FinishReason.STOP)
    done = run(perfect([10, 11, 12, 13, 14, STOP]), params, limits)
    assert (done.tokens, done.reason) == ([10, 11, 12, 13, 14], FinishReason.LENGTH)


@pytest.mark.parametrize("params", TRUSTING, ids=lambda p: p.mode)
@pytest.mark.parametrize("stop", [97, 98])
def test_every_stop_id_ends_the_block_and_only_what_the_user_got_counts(params: DecodingParams, stop: int) -> None:
    done = run(perfect([1, 2, stop, 4, 5]), params, Limits(50, frozenset({97, 98})))
    assert done.tokens == [1, 2]
    assert sum(step.accepted for step in done.steps) <= 2
    assert all(step.accepted <= len(step.tokens) for step in done.steps)


@pytest.mark.parametrize("params", TRUSTING, ids=lambda p: p.mode)
def test_max_tokens_one_spends_one_pass(params: DecodingParams) -> None:
    done = run(perfect([1, 2, 3]), params, Limits(1))
    assert done.tokens == [1]
    assert done.requests == [Request(Role.PROPOSER, Propose(1))]


@pytest.mark.parametrize("mode", EXACT)
@given(
    wrong=st.sets(st.integers(0, 39)),
    others=st.dictionaries(st.integers(0, 39), st.booleans()),
    block=st.integers(1, 17),
    cap=st.integers(1, 40),
    stop_at=st.one_of(st.none(), st.integers(0, 39)),
)
def test_exact_modes_reproduce_the_target(
    mode: Mode, wrong: set[int], others: dict[int, bool], block: int, cap: int, stop_at: int | None
) -> None:
    """Whatever is guessed, and whatever alternatives there are to it: right ones, or others."""
    target = list(range(100, 140))
    if stop_at is not None:
        target[stop_at] = STOP
    padded = [*target, *range(1000, 1100)]
    others = {place: right for place, right in others.items() if place in wrong or not right}
    script = Script(
        padded,
        lambda i: 77 if i in wrong else padded[i],
        others=lambda i: (padded[i] if others[i] else 55) if i in others else None,
    )
    params = DecodingParams(mode, block_size=block, draft_length=block)
    done = run(script, params, Limits(cap, frozenset({STOP})))
    stopped = stop_at is not None and stop_at < cap
    expected = target[:stop_at] if stopped else target[:cap]
    assert done.tokens == expected
    assert done.reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)


@pytest.mark.parametrize("block", [1, 2, 4, 8, 16])
def test_a_rejection_at_each_place_leaves_the_correction_there(block: int) -> None:
    target = list(range(100, 200))
    for rejected in range(1, block):
        guesses = [77 if i % block == rejected else target[i] for i in range(len(target))]
        done = run(Script(target, guesses.__getitem__), DecodingParams(Mode.LOSSLESS, block_size=block), Limits(64))
        assert done.tokens == target[:64]
        first = next(step for step in done.steps if step.drafted)
        assert (first.drafted, first.accepted, len(first.tokens)) == (block - 1, rejected - 1, rejected)


@pytest.mark.parametrize("mode", list(Mode))
@given(wrong=st.sets(st.integers(0, 39)), stop_at=st.none() | st.integers(0, 39), cap=st.integers(1, 40))
def test_a_trace_tells_what_was_rejected_and_changes_nothing_else(
    mode: Mode, wrong: set[int], stop_at: int | None, cap: int
) -> None:
    target = list(range(100, 240))
    if stop_at is not None:
        target[stop_at] = STOP
    params = DecodingParams(mode, tau=0.6, theta=0.1, block_size=6, draft_length=5)
    limits = Limits(cap, frozenset({STOP}))
    plain, traced = (
        run(Script(target, lambda i: 77 if i in wrong else target[i]), replace(params, trace=trace), limits)
        for trace in (False, True)
    )
    assert [replace(step, rejected=()) for step in traced.steps] == plain.steps
    assert not any(step.rejected for step in plain.steps)
    for step in traced.steps[:-1]:
        assert len(step.rejected) == step.drafted - step.accepted
    last = traced.steps[-1]
    assert len(last.rejected) in (0, last.drafted - last.accepted)
    if traced.reason is FinishReason.STOP:
        assert not last.rejected


def test_what_was_rejected_stood_where_the_accepted_tokens_end() -> None:
    target = list(range(100, 200))
    guesses = [77 + i if i in (3, 5) else target[i] for i in range(100)]
    for mode in (Mode.LOSSLESS, Mode.PROVE):
        params = DecodingParams(mode, block_size=8, theta=0.1, trace=True)
        steps = run(Script(target, guesses.__getitem__), params, Limits(64)).steps
        assert next(step.rejected for step in steps if step.drafted) == (80, 104, 82, 106, 107)


def test_prove_takes_both_scalars_and_mars_only_confidence() -> None:
    target = list(range(100, 200))
    script = Script(target, lambda i: 77 if i == 3 else target[i])
    done = run(script, DecodingParams(Mode.PROVE, theta=0.3, block_size=8), Limits(3))
    assert done.tokens == target[:3]
    assert [request.role for request in done.requests] == [Role.PROPOSER, Role.VERIFIER]
    none = run(perfect(target), DecodingParams(Mode.PROVE, theta=0.45, block_size=8), Limits(3))
    assert none.cycles == 3  # 0.5 * 0.9 does not exceed 0.45: one token per cycle
    fooled = run(
        Script(target, lambda i: 77 if i == 3 else target[i]),
        DecodingParams(Mode.MARS, tau=0.4, block_size=8),
        Limits(5),
    )
    assert fooled.tokens[3] == 77
    assert fooled.cycles == 1


def test_greedy_acceptance_compares_ids_not_probabilities() -> None:
    target = list(range(100, 200))
    script = perfect(target)
    original = script.answer

    def improbable(request: Request) -> Answer:
        answer = original(request)
        return Reading(answer.argmax, (0.0,) * len(answer.probabilities)) if isinstance(answer, Reading) else answer

    script.answer = improbable  # type: ignore[method-assign]
    done = run(script, DecodingParams(Mode.LOSSLESS, block_size=8), Limits(16))
    assert done.tokens == target[:16]
    assert sum(step.accepted for step in done.steps) > 10


def test_what_cannot_be_committed_is_not_computed() -> None:
    """A block is read up to its first stop id, and never needs the last token of the budget."""
    target = [1, 2, STOP, 4, 5, 6, 7, 8, 9]
    for mode in (Mode.PROVE, Mode.LOSSLESS):
        done = run(perfect(target), DecodingParams(mode, block_size=8, theta=0.1), Limits(50, frozenset({STOP})))
        assert [r.call for r in done.requests] == [Propose(8), Verify((2, STOP))]
    done = run(perfect(list(range(100, 120))), DecodingParams(Mode.LOSSLESS, block_size=8), Limits(5))
    assert [r.call for r in done.requests] == [Propose(4), Verify((101, 102, 103))]
