"""Statistics of a completion from its steps."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.cycle import Collect, Request
from prove_core.decoding.driver import CompletionDriver, Pending
from prove_core.statistics import CompletionStatistics
from prove_core.types import (
    Answer,
    CallResult,
    Continue,
    Continued,
    Cost,
    DecodingParams,
    Draft,
    Drafted,
    Finished,
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
    Verify,
)


def test_counts() -> None:
    statistics = CompletionStatistics(Mode.PROVE)
    first, second = Cost(1, 1, 0, 0.5), Cost(0, 0, 1, 0.25)
    steps = (Step((1,), cost=first), Step((2, 3), 3, 2, second), Step((4,), cost=first), Step((), 2, 0, second))
    for step in steps:
        statistics.add(step)
    statistics.ended(Finished(FinishReason.STOP, Cost(1, 1)))
    assert statistics.drafts == 2
    assert (statistics.draft_tokens, statistics.accepted_tokens) == (5, 2)
    assert statistics.accepted_per_position == [1, 1, 0]
    assert statistics.committed_tokens == 4
    assert statistics.cost == Cost(3, 3, 2, 1.5)


@given(
    mode=st.sampled_from(Mode),
    block_size=st.integers(1, 6),
    max_tokens=st.integers(1, 20),
    stop_ids=st.frozensets(st.integers(0, 7), max_size=2),
    overlap_rows=st.sampled_from([0, 20]),
    random=st.randoms(use_true_random=False),
)
def test_steps_and_end_carry_all_that_was_spent(
    mode: Mode, block_size: int, max_tokens: int, stop_ids: frozenset[int], overlap_rows: int, random: Random
) -> None:
    params = DecodingParams(
        mode, block_size=block_size, draft_length=block_size, theta=0.5, tau=0.5, overlap_rows=overlap_rows
    )
    driver = CompletionDriver("s", (1,), params, Limits(max_tokens, stop_ids))
    statistics = CompletionStatistics(mode)
    spent = {Role.PROPOSER: 0, Role.VERIFIER: 0}
    result: CallResult | None = None
    ahead: CallResult | None = None

    def execute(pending: Pending) -> CallResult:
        passes = random.randint(1, 3)
        spent[pending.role] += passes
        return CallResult(_answer(Request(pending.role, pending.request.call), random), passes, 0.25 * passes, 0.0)

    while True:
        turn = driver.advance(result)
        for step in turn.steps:
            statistics.add(step)
        if isinstance(turn.following, Finished):
            statistics.ended(turn.following)
            break
        if turn.ahead is not None:
            ahead = execute(turn.ahead)
        if isinstance(turn.following, Collect):
            result, ahead = ahead, None
            continue
        result = execute(turn.following)
        if ahead is not None and turn.following.role is Role.PROPOSER:
            driver.spent(Role.PROPOSER, ahead)
            ahead = None
    if ahead is not None:  # what nobody waits for any more is not counted
        spent[Role.PROPOSER] -= ahead.passes
    cost = statistics.cost
    assert (cost.proposer_passes, cost.verifier_passes) == (spent[Role.PROPOSER], spent[Role.VERIFIER])
    assert cost.pass_seconds == 0.25 * sum(spent.values())
    assert 1 <= cost.cycles <= sum(spent.values())
    assert statistics.committed_tokens == len(driver.ledger.tokens) - 1


def _answer(request: Request, random: Random) -> Answer:
    def tokens(count: int) -> tuple[int, ...]:
        return tuple(random.randrange(8) for _ in range(count))

    def floats(count: int) -> tuple[float, ...]:
        return tuple(random.random() for _ in range(count))

    match request.call:
        case Propose(size):
            return Proposal(tokens(size), floats(size))
        case Verify(block):
            return Reading(tokens(len(block) + 1), floats(len(block)))
        case Fuse(block, branches):
            count = max((branch.placeholders for branch in branches), default=0)
            return Fused(tokens(len(block) + 1), tokens(count), floats(count))
        case Continue(_, branches):
            sizes = [branch.placeholders + 1 for branch in branches]
            return Continued(tuple(Proposal(tokens(size), floats(size)) for size in sizes))
        case Draft(length):
            return Drafted(tokens(length))
