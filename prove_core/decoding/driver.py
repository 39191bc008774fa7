"""The state of one completion while it is decoded: what is committed, what each role has seen, what it cost.

The same driver serves the engine thread (one model) and the Router (two): they differ in how a request is executed.
"""

import time
from dataclasses import dataclass

from prove_core.decoding.cycle import AR_ONLY, Ahead, Aids, Collect, Planner, Request, decode
from prove_core.decoding.lookup import Lookup
from prove_core.types import (
    Call,
    CallRequest,
    CallResult,
    Commit,
    Cost,
    DecodingParams,
    Finished,
    Floor,
    Limits,
    Role,
    SamplingParams,
    Step,
    TokenIds,
    Verify,
)


class Ledger:
    """The committed tokens of a session, and how many of them each role knows. The Router's copy is the truth."""

    def __init__(self, session: str, prompt: TokenIds) -> None:
        self.session = session
        self.tokens = list(prompt)
        self._cycle = 0
        self._known = dict.fromkeys(Role, 0)

    def commit(self, role: Role) -> Commit:
        """What `role` has not been told yet, as the next cycle's commit. Tokens are only ever appended."""
        known = self._known[role]
        self._known[role] = len(self.tokens)
        self._cycle += 1
        return Commit(self.session, self._cycle, known, tuple(self.tokens[known:]))

    def lost(self, role: Role) -> None:
        """`role` no longer holds the session: its next commit opens it again with every token."""
        self._known[role] = 0


@dataclass(frozen=True, slots=True)
class Pending:
    """A call to execute before the completion can go on."""

    role: Role
    request: CallRequest


@dataclass(frozen=True, slots=True)
class Turn:
    """What a completion did and needs. `ahead` is a call to begin before `following`, and not to wait for."""

    steps: list[Step]
    following: Pending | Collect | Finished
    ahead: Pending | None = None


@dataclass(slots=True)
class _Spent:
    """A `Cost` while it grows."""

    cycles: int = 0
    proposer_passes: int = 0
    verifier_passes: int = 0
    pass_seconds: float = 0.0
    verify_seconds: float = 0.0
    gate_seconds: float = 0.0
    queue_seconds: float = 0.0
    channel_seconds: float = 0.0

    def call(self, role: Role, call: Call | None, result: CallResult, call_seconds: float | None) -> None:
        """Add what a call cost."""
        if role is Role.PROPOSER:
            self.proposer_passes += result.passes
        else:
            self.verifier_passes += result.passes
        self.pass_seconds += result.pass_seconds
        self.queue_seconds += result.queue_seconds
        if isinstance(call, Verify):
            self.verify_seconds += result.pass_seconds
        if call_seconds is not None:
            self.channel_seconds += max(0.0, call_seconds - (result.pass_seconds + result.queue_seconds))

    def cost(self) -> Cost:
        """As it stands."""
        return Cost(
            self.cycles,
            self.proposer_passes,
            self.verifier_passes,
            self.pass_seconds,
            self.verify_seconds,
            self.gate_seconds,
            self.queue_seconds,
            self.channel_seconds,
        )


class CompletionDriver:
    """Drives `decode` for one session: `advance` until `Finished` follows. Mode `auto` asks `planner`."""

    def __init__(
        self,
        session: str,
        prompt: TokenIds,
        params: DecodingParams,
        limits: Limits,
        sampling: SamplingParams | None = None,
        planner: Planner = AR_ONLY,
    ) -> None:
        self.ledger = Ledger(session, prompt)
        self._sampling = sampling
        self._floor = _floor(len(prompt), limits)
        self._cycles = decode(params, limits, Aids(planner, Lookup(self.ledger.tokens)))
        self._spent = _Spent()
        self._waiting: Request | None = None
        self._ahead: Ahead | None = None
        self._counted = 0.0  # the moment up to which decisions are part of what was spent

    def advance(self, result: CallResult | None = None, call_seconds: float | None = None) -> Turn:
        """Feed the result of what followed the last turn: None at the start, and for an `ahead` that got lost.

        `call_seconds`: how long the call took for a caller in another process.
        """
        self._counted = time.perf_counter()
        asked = self._waiting or self._ahead
        if result is not None and asked is not None:
            self._spent.call(asked.role, asked.call, result, call_seconds)
        answer = None if result is None else result.answer
        steps: list[Step] = []
        ahead: Pending | None = None
        try:
            item = self._cycles.send(answer)
            while isinstance(item, Step | Ahead):
                if isinstance(item, Step):
                    self._take(item, steps)
                else:
                    self._ahead, ahead = item, self._pending(item)
                item = self._cycles.send(None)
        except StopIteration as end:
            return Turn(steps, Finished(end.value, self._spent.cost()), ahead)
        self._waiting = item if isinstance(item, Request) else None
        return Turn(steps, item if isinstance(item, Collect) else self._pending(item), ahead)

    def spent(self, role: Role, result: CallResult) -> None:
        """Count what a call cost; `advance` does it for results that it is fed."""
        self._spent.call(role, None, result, None)

    def _take(self, step: Step, steps: list[Step]) -> None:
        """Commit a step. One without tokens or candidates is nobody's news; what it cost goes to the next."""
        spent = self._spent
        spent.cycles += step.cost.cycles
        if step.tokens or step.drafted:
            now = time.perf_counter()
            spent.gate_seconds += now - self._counted
            self._counted = now
            steps.append(Step(step.tokens, step.drafted, step.accepted, spent.cost(), step.rejected, step.logprobs))
            self.ledger.tokens += step.tokens
            self._spent = _Spent()

    def reopen(self) -> Pending:
        """The pending call again, for a replica that does not hold the session."""
        if self._waiting is None:
            raise RuntimeError("no call is pending")
        self.ledger.lost(self._waiting.role)
        return self._pending(self._waiting)

    def _pending(self, request: Request | Ahead) -> Pending:
        commit = self.ledger.commit(request.role)
        return Pending(request.role, CallRequest(commit, request.call, self._floor, self._sampling))


def _floor(prompt_length: int, limits: Limits) -> Floor | None:
    if not limits.min_tokens or not limits.stop_ids:
        return None
    return Floor(prompt_length + limits.min_tokens, tuple(sorted(limits.stop_ids)))
