"""Completions and the time they take: one after another, or some in flight at once."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prove_core.engine.engine import Engine
from prove_core.engine.local import complete
from prove_core.engine.many import complete_many
from prove_core.types import Cost, DecodingParams, Finished, GenerateRequest, Limits, Role, Step, TokenIds

Task = tuple[TokenIds, Limits]
NO_COST = Cost()


@dataclass(frozen=True, slots=True)
class Decoded:
    """Some completions in order. `seconds` during which any of them was in flight; `cost` of all, prefills included.

    A pass that several completions share is in the cost of each.
    """

    outputs: tuple[TokenIds, ...]
    seconds: float
    cost: Cost = NO_COST

    def __add__(self, other: "Decoded") -> "Decoded":
        return Decoded(self.outputs + other.outputs, self.seconds + other.seconds, self.cost + other.cost)

    @property
    def tokens(self) -> int:
        """Of all completions together."""
        return sum(map(len, self.outputs))

    @property
    def passes(self) -> int:
        """By either model, as the completions count them."""
        return self.cost.proposer_passes + self.cost.verifier_passes

    @property
    def rate(self) -> float:
        """Tokens per second in flight: of the sums, never a mean of rates."""
        return self.tokens / self.seconds


def one_by_one(engines: Mapping[Role, Engine], tasks: Sequence[Task], params: DecodingParams) -> Decoded:
    """Decode the tasks one after another, in any mode the engines are enough for. Raises what they answer."""
    whole = Decoded((), 0.0)
    for prompt, limits in tasks:
        request = GenerateRequest("bench", prompt, params, limits)
        begin = time.perf_counter()
        events = list(complete(engines, request))
        whole += Decoded((_tokens(events),), time.perf_counter() - begin, _cost(events))
    return whole


def together(engine: Engine, tasks: Sequence[Task], params: DecodingParams, concurrency: int) -> Decoded:
    """Decode the tasks by one model, `concurrency` in flight until too few are left. Raises what the engine answers."""
    requests = [GenerateRequest(f"bench-{i}", prompt, params, limits) for i, (prompt, limits) in enumerate(tasks)]
    events: list[list[Step | Finished]] = [[] for _ in tasks]
    begin = time.perf_counter()
    for index, event in complete_many(engine, requests, concurrency):
        events[index].append(event)
    seconds = time.perf_counter() - begin
    return Decoded(tuple(map(_tokens, events)), seconds, sum(map(_cost, events), NO_COST))


def _tokens(events: Sequence[Step | Finished]) -> TokenIds:
    return tuple(token for event in events if isinstance(event, Step) for token in event.tokens)


def _cost(events: Sequence[Step | Finished]) -> Cost:
    return sum((event.cost for event in events), NO_COST)
