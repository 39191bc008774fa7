"""What a way of decoding really commits, and how much of it is not what the proposer would have said."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prove_core.engine.engine import Engine
from prove_core.engine.local import complete
from prove_core.evaluation.forced import read_forced
from prove_core.statistics import CompletionStatistics
from prove_core.types import DecodingParams, Finished, FinishReason, GenerateRequest, Limits, Role, TokenIds


@dataclass(frozen=True, slots=True)
class Outcome:
    """One completion. `tokens`, `cycles` and passes of each role, prefill's included, as the server reports them.

    `judged` decisions were compared with the proposer's own, `non_ar` of them were others: each token against the
    proposer's argmax after the output's own tokens so far, and an end by a stop id against whether it would stop there.
    """

    tokens: int
    cycles: int
    proposer_passes: int
    verifier_passes: int
    judged: int
    non_ar: int


def decode_and_judge(
    engines: Mapping[Role, Engine], session: str, prompt: TokenIds, params: DecodingParams, limits: Limits
) -> Outcome:
    """Decode `prompt`, then let the proposer read what came out. Raises what the engines answer."""
    statistics = CompletionStatistics(params.mode)
    output: list[int] = []
    reason = FinishReason.LENGTH
    for event in complete(engines, GenerateRequest(session, prompt, params, limits)):
        if isinstance(event, Finished):
            statistics.ended(event)
            reason = event.reason
        else:
            statistics.add(event)
            output += event.tokens
    argmax = read_forced(engines[Role.PROPOSER], f"{session}-read", prompt, tuple(output)).argmax
    wrong = sum(token != best for token, best in zip(output, argmax, strict=False))
    stopped = reason is FinishReason.STOP
    cost = statistics.cost
    return Outcome(
        tokens=len(output),
        cycles=cost.cycles,
        proposer_passes=cost.proposer_passes,
        verifier_passes=cost.verifier_passes,
        judged=len(output) + stopped,
        non_ar=wrong + (stopped and argmax[-1] not in limits.stop_ids),
    )


def total(outcomes: Iterable[Outcome]) -> Outcome:
    """The sums over completions: rates are of the sums, never means of rates."""
    columns = zip(
        *((o.tokens, o.cycles, o.proposer_passes, o.verifier_passes, o.judged, o.non_ar) for o in outcomes),
        strict=True,
    )
    return Outcome(*map(sum, columns))
