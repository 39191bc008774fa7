"""The decoding modes, one cycle each, as the paper states them. No I/O: a cycle yields what it needs.

A cycle yields `Request`s, to be sent the answer, and `Step`s, the tokens it commits; for two models to work at once,
also calls to begin `Ahead` and a wish to `Collect` what came of them. Whoever drives it (the engine
thread for one model, the Router for two) executes the requests; `decode` strings cycles together until the end.

The first token d_1 of a block is the proposer's AR token and is committed before anything else happens, so what is
verified is always `block = d_2..d_B`, read after a sequence that already ends with d_1.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Protocol, cast

from prove_core.decoding.acceptance import confident_length, evidence, gated_length
from prove_core.decoding.drafts import Drafts, carried, within, worth_verifying
from prove_core.decoding.fixed_rows import FixedRows
from prove_core.decoding.limits import Budget
from prove_core.decoding.lookup import Lookup, Repeat
from prove_core.decoding.overlap import Foresight, foreseen_stops, proposal_at
from prove_core.decoding.plan import AR_PASS, Plan
from prove_core.model.path import match_length, taken_path
from prove_core.types import (
    IDENTITY,
    Alternatives,
    Answer,
    Calibration,
    Call,
    Continue,
    Continued,
    Cost,
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


@dataclass(frozen=True, slots=True)
class Request:
    """A call that the cycle waits for."""

    role: Role
    call: Call


@dataclass(frozen=True, slots=True)
class Ahead:
    """A call to begin without waiting for it. At most one is under way; a later request to its role takes its place."""

    role: Role
    call: Call


@dataclass(frozen=True, slots=True)
class Collect:
    """Wait for the latest `Ahead`; sent its answer, or None if that got lost."""


Item = Request | Ahead | Collect | Step
Carry = Drafts | Foresight | None
"""What the next cycle of a completion starts from, if anything."""

Cycle = Generator[Item, Answer | None, Carry]


class Planner(Protocol):
    """Decides, in modes `fused` and `auto`, what the next pass of one completion verifies and proposes."""

    def plan(self, drafts: Drafts, repeat: Repeat, room: int) -> Plan:
        """For these drafts, or those of `repeat`, where `room` tokens may still be committed."""
        ...

    def learn(self, drafted: int, accepted: int) -> None:
        """What became of the drafts of the latest plan."""
        ...


class _ArOnly:
    """Implements `Planner` where nothing can be proposed, or nothing is known of what that costs."""

    def plan(self, drafts: Drafts, repeat: Repeat, room: int) -> Plan:
        return AR_PASS

    def learn(self, drafted: int, accepted: int) -> None:
        return


AR_ONLY = _ArOnly()


def fixed_planner(params: DecodingParams, calibration: Calibration) -> Planner:
    """Where what passes cost plays no part: in mode `fused`, and where nobody knows it."""
    if params.mode is not Mode.FUSED:
        return AR_ONLY
    return FixedRows(params.fused_rows, params.block_size - 1, calibration)


@dataclass(frozen=True, slots=True)
class Aids:
    """What modes `fused` and `auto` turn to: the completion's planner, and a lookup of what its context repeats."""

    planner: Planner
    lookup: Lookup


def _propose(block_size: int) -> Generator[Item, Answer | None, Proposal]:
    """One proposer pass; d_1 is committed at once."""
    proposal = cast(Proposal, (yield Request(Role.PROPOSER, Propose(block_size))))
    yield Step(proposal.tokens[:1], logprobs=proposal.logprobs)
    return proposal


def _gated(block: TokenIds, accepted: int) -> Step:
    """The verdict of a threshold on a block: `accepted` of it."""
    return Step(block[:accepted], len(block), accepted, rejected=block[accepted:])


def _verified(block: TokenIds, alternatives: Alternatives, answer: Reading | Fused) -> Step:
    """The verdict of the proposer itself: the drafts that match, then its own next token."""
    candidates, accepted, following = taken_path(block, answer.argmax, alternatives, answer.behind)
    return Step(
        (*candidates[:accepted], following),
        len(candidates),
        accepted,
        rejected=candidates[accepted:],
        logprobs=answer.logprobs[: accepted + 1],
    )


def ar(params: DecodingParams, budget: Budget, _: Carry, __: Aids) -> Cycle:
    """The proposer's own next token, greedy or drawn."""
    yield from _propose(1)
    return None


def mars(params: DecodingParams, budget: Budget, _: Carry, __: Aids) -> Cycle:
    """One pass; the block's tokens while their own confidence exceeds tau (MARS)."""
    proposal = yield from _propose(min(params.block_size, budget.remaining))
    block = proposal.tokens[1:]
    accepted = confident_length(proposal.confidences[1:], params.tau)
    yield _gated(block, accepted)
    return None


def prove(params: DecodingParams, budget: Budget, carry: Carry, _: Aids) -> Cycle:
    """Proposer, then verifier; the block's tokens while their gate score exceeds theta (paper section 3).

    With `overlap_rows` the proposer goes on while the verifier reads, and the next cycle often finds its proposal
    ready: it takes the longer of two passes, not their sum. What is committed does not depend on it.
    """
    foresight = carry if isinstance(carry, Foresight) else Foresight()
    proposal = foresight.proposal
    if proposal is None:
        proposal = yield from _propose(min(params.block_size, budget.remaining))
    else:
        yield Step(proposal.tokens[:1])
    block = budget.through_stop(proposal.tokens[1:])
    if not block:
        return replace(foresight, proposal=None)
    confidences = proposal.confidences[1 : 1 + len(block)]
    branches = foreseen_stops(params, block, confidences, budget.remaining, foresight) if params.overlap_rows else ()
    if branches:
        yield Ahead(Role.PROPOSER, Continue(block, branches))
    reading = cast(Reading, (yield Request(Role.VERIFIER, Verify(block))))
    accepted = gated_length(params, evidence(block, confidences, reading))
    yield _gated(block, accepted)
    following = foresight.judged(confidences, accepted)
    if all(branch.accepted != accepted for branch in branches):
        return following
    continued = cast(Continued | None, (yield Collect()))
    return replace(following, proposal=proposal_at(accepted, branches, continued))


def lossless(params: DecodingParams, budget: Budget, _: Carry, __: Aids) -> Cycle:
    """The proposer verifies itself: matching prefix plus its own next token. Output: that of `ar`."""
    # The verifying pass always yields one token beyond the block, so a block never needs the last of the budget.
    proposal = yield from _propose(max(1, min(params.block_size, budget.remaining - 1)))
    drafts = within(budget, Drafts(proposal.tokens[1:], proposal.confidences[1:], proposal.alternatives))
    if drafts.tokens:
        yield from _verify_greedily(drafts.tokens, worth_verifying(drafts))
    return None


def fused(params: DecodingParams, budget: Budget, carry: Carry, aids: Aids) -> Cycle:
    """One proposer pass that verifies the drafts of the pass before and proposes the next ones (design section 3).

    What of both is up to the planner: nothing is plain AR. What the context repeats may take the place of the proposed
    drafts. Output: that of `ar`, as in `lossless`.
    """
    planner = aids.planner
    drafts = within(budget, carry) if isinstance(carry, Drafts) else _NO_DRAFTS
    repeat = aids.lookup.find(min(_LOOKED_UP, budget.remaining - 1))
    if repeat.match:
        repeat = replace(repeat, tokens=budget.through_stop(repeat.tokens))
    plan = planner.plan(drafts, repeat, budget.remaining)
    if plan is AR_PASS:
        yield from _propose(1)
        planner.learn(0, 0)
        return None
    block = (repeat if plan.repeats else drafts).tokens[: plan.drafts]
    answer = cast(Fused, (yield Request(Role.PROPOSER, Fuse(block, plan.branches, plan.alternatives))))
    step = _verified(block, plan.alternatives, answer)
    planner.learn(len(block), step.accepted)
    yield step
    matched = match_length(block, answer.argmax)
    return carried(answer, params.block_size - 1, plan.branches, matched, len(step.tokens) - matched)


def speculative(params: DecodingParams, budget: Budget, _: Carry, __: Aids) -> Cycle:
    """Classic speculative decoding: the verifier checkpoint drafts serially, the proposer verifies."""
    length = min(params.draft_length, budget.remaining - 1)
    if length < 1:
        yield from _propose(1)
        return None
    drafted = cast(Drafted, (yield Request(Role.VERIFIER, Draft(length))))
    yield from _verify_greedily(budget.through_stop(drafted.tokens), ())
    return None


def _verify_greedily(block: TokenIds, alternatives: Alternatives) -> Generator[Item, Answer | None, None]:
    reading = cast(Reading, (yield Request(Role.PROPOSER, Verify(block, alternatives))))
    yield _verified(block, alternatives, reading)


CYCLES: dict[Mode, Callable[[DecodingParams, Budget, Carry, Aids], Cycle]] = {
    Mode.AR: ar,
    Mode.MARS: mars,
    Mode.PROVE: prove,
    Mode.LOSSLESS: lossless,
    Mode.FUSED: fused,
    Mode.AUTO: fused,
    Mode.SPECULATIVE: speculative,
}

_LOOKED_UP = 6  # tokens
_NO_DRAFTS = Drafts((), ())

_BEGUN, _NOTHING = Cost(cycles=1), Cost()

TWO_MODEL_MODES = frozenset({Mode.PROVE, Mode.SPECULATIVE})


def decode(
    params: DecodingParams, limits: Limits, aids: Aids | None = None
) -> Generator[Item, Answer | None, FinishReason]:
    """Cycles until a stop id or `max_tokens`. Steps arrive cut to what the user gets; the drafted counts stay whole.

    Without `aids` mode `auto` is `ar`, and `fused` goes by what a proposer says of its drafts.

    The first step of a cycle carries it in its cost. Rejected candidates are told only if `params.trace`.
    """
    budget = Budget(limits)
    aids = aids or Aids(fixed_planner(params, IDENTITY), Lookup(()))
    carry: Carry = None
    while True:
        cycle = CYCLES[params.mode](params, budget, carry, aids)
        begun = _BEGUN
        answer: Answer | None = None
        while isinstance(item := _resume(cycle, answer), Item):
            if not isinstance(item, Step):
                answer = yield item
                continue
            rejected = item.rejected if params.trace else ()
            whole = Step(item.tokens, item.drafted, item.accepted, begun, rejected, item.logprobs)
            step, reason = budget.take(whole)
            yield step
            if reason is not None:
                return reason
            answer, begun = None, _NOTHING
        carry = item


def _resume(cycle: Cycle, answer: Answer | None) -> Item | Carry:
    try:
        return cycle.send(answer)
    except StopIteration as end:
        return cast(Carry, end.value)
