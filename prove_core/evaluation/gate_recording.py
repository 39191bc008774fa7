"""Recording what gates see: real blocks, proposed and read at anchors along the proposer's greedy AR trajectories."""

from collections.abc import Mapping
from typing import cast

from prove_core.decoding.acceptance import evidence
from prove_core.decoding.limits import Budget
from prove_core.engine.engine import Engine
from prove_core.engine.local import call, complete
from prove_core.training.gate_records import BlockRecord, Candidate
from prove_core.types import (
    Answer,
    Call,
    CallRequest,
    Commit,
    DecodingParams,
    GenerateRequest,
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


def record_blocks(
    engines: Mapping[Role, Engine], index: int, prompt: TokenIds, limits: Limits, block_size: int, stride: int
) -> list[BlockRecord]:
    """The blocks of prompt number `index`, at every `stride`-th token of the proposer's greedy answer to it.

    Each block is cut after its first stop id, as in mode `prove`. Raises what the engines answer.
    """
    request = GenerateRequest(f"trajectory-{index}", prompt, DecodingParams(Mode.AR), limits)
    steps = [event for event in complete(engines, request) if isinstance(event, Step)]
    trajectory = (*prompt, *(token for step in steps for token in step.tokens))
    session = _Session(engines, f"record-{index}")
    try:
        anchors = range(len(prompt), len(trajectory), stride)
        blocks = ((anchor, _candidates(session, trajectory[:anchor], limits, block_size)) for anchor in anchors)
        return [BlockRecord(index, anchor, candidates) for anchor, candidates in blocks if candidates]
    finally:
        session.release()


def _candidates(session: "_Session", context: TokenIds, limits: Limits, block_size: int) -> tuple[Candidate, ...]:
    """One cycle's candidates after `context`; none where the first token ends the completion."""
    proposal = cast(Proposal, session.ask(Role.PROPOSER, context, Propose(block_size)))
    first, block = proposal.tokens[:1], Budget(limits).through_stop(proposal.tokens[1:])
    if first[0] in limits.stop_ids or not block:
        return ()
    committed = (*context, *first)
    read, own = (cast(Reading, session.ask(role, committed, Verify(block))) for role in (Role.VERIFIER, Role.PROPOSER))
    seen = evidence(block, proposal.confidences[1 : 1 + len(block)], read)
    return tuple(Candidate(each, token == best) for each, token, best in zip(seen, block, own.argmax[:-1], strict=True))


class _Session:
    """Calls of one session on both engines, each after a whole context. Engines keep the KV of what two share."""

    def __init__(self, engines: Mapping[Role, Engine], name: str) -> None:
        self._engines = engines
        self._name = name
        self._cycle = 0

    def ask(self, role: Role, context: TokenIds, asked: Call) -> Answer:
        """The answer to a call after `context`."""
        self._cycle += 1
        commit = Commit(self._name, self._cycle, 0, context)
        return call(self._engines[role], CallRequest(commit, asked)).answer

    def release(self) -> None:
        """Free the session's pages."""
        for engine in self._engines.values():
            engine.release(self._name)
