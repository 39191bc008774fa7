"""Statistics of a completion from its steps."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from prove_core.decoding.cycle import Ending, Request, decode
from prove_core.statistics import CompletionStatistics
from prove_core.types import (
    Answer,
    DecodingParams,
    Draft,
    Drafted,
    Finished,
    FinishReason,
    Limits,
    Mode,
    PassCount,
    Proposal,
    Propose,
    Reading,
    Step,
    Verify,
)


def test_counts() -> None:
    statistics = CompletionStatistics(Mode.PROVE)
    for step in (Step((1,)), Step((2, 3), drafted=3, accepted=2), Step((4,)), Step((), drafted=2, accepted=0)):
        statistics.add(step)
    assert statistics.cycles == 2
    assert statistics.drafts == 2
    assert (statistics.draft_tokens, statistics.accepted_tokens) == (5, 2)
    assert statistics.accepted_per_position == [1, 1, 0]
    assert statistics.committed_tokens == 4
    assert (statistics.proposer_passes, statistics.verifier_passes, statistics.pass_seconds) == (2, 2, None)


def test_the_models_report_goes_before_the_estimate() -> None:
    statistics = CompletionStatistics(Mode.AR)
    statistics.add(Step((1,)))
    statistics.ended(Finished(FinishReason.STOP, 2, PassCount(1, 3, 0.5), PassCount(0, 0, 0.25)))
    assert statistics.cycles == 2
    assert (statistics.proposer_passes, statistics.verifier_passes, statistics.pass_seconds) == (3, 0, 0.75)


@given(
    mode=st.sampled_from(Mode),
    block_size=st.integers(1, 6),
    max_tokens=st.integers(1, 20),
    random=st.randoms(use_true_random=False),
)
def test_cycles_and_passes_agree_with_the_decoder(mode: Mode, block_size: int, max_tokens: int, random: Random) -> None:
    """Counted from the steps alone, as after a stop string, they equal what really happened."""
    params = DecodingParams(mode=mode, block_size=block_size, draft_length=block_size, theta=0.5, tau=0.5)
    cycle = decode(params, Limits(max_tokens))
    statistics = CompletionStatistics(mode)
    passes = {"proposer": 0, "verifier": 0}
    answer: Answer | None = None
    try:
        while True:
            item = cycle.send(answer)
            answer = None
            if isinstance(item, Step):
                statistics.add(item)
            else:
                passes[item.role] += item.call.length if isinstance(item.call, Draft) else 1
                answer = _answer(item, random)
    except StopIteration as end:
        ending: Ending = end.value
    assert statistics.cycles == ending.cycles
    assert statistics.proposer_passes == passes["proposer"]
    assert statistics.verifier_passes == passes["verifier"]


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
        case Draft(length):
            return Drafted(tokens(length))
