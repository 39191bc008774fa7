"""How many replicas a load asks for. Pure: what was seen goes in, a number of replicas comes out.

A load is counted in replicas: 2.4 means that two are too few. One that asks for more gets more; fewer are enough only
once the load would leave them room (`SHRINK`), and never as few as were found wanting at about this load. So a constant
load ends at one number, with at most one change of direction on the way.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

SHRINK = 0.75  # fewer replicas must leave this share of themselves free of the load
SETTLE_S = 5.0  # after a change in the number of running replicas, averages still tell of the time before


@dataclass(frozen=True, slots=True)
class Signal:
    """One replica lately. `busy`: share of time in passes; `wait_s`: p90 queueing; `kv`: share of the pool taken."""

    busy: float
    wait_s: float
    kv: float
    sessions: float


@dataclass(frozen=True, slots=True)
class Demand:
    """A load in replicas, and whether calls wait too long whatever the load."""

    load: float
    waits: bool


@dataclass(frozen=True, slots=True)
class Memory:
    """What a policy keeps: how many replicas run since when (seconds), and the load that so many could not carry."""

    running: int = 0
    since: float = 0.0
    wanting: tuple[tuple[int, float], ...] = ()


def verifier_demand(signals: Sequence[Signal], target_busy: float, target_kv: float, max_wait_s: float) -> Demand:
    """By busy fraction or by KV, whichever asks for more.

    p90 waits count on average, since sessions stay where they are when a replica joins.
    """
    busy = sum(signal.busy for signal in signals) / target_busy
    return Demand(max(busy, _kv(signals) / target_kv), _waits(signals, max_wait_s))


def proposer_demand(signals: Sequence[Signal], target_sessions: float, target_kv: float, max_wait_s: float) -> Demand:
    """By sessions or by KV, whichever asks for more."""
    sessions = sum(signal.sessions for signal in signals) / target_sessions
    return Demand(max(sessions, _kv(signals) / target_kv), _waits(signals, max_wait_s))


def _kv(signals: Sequence[Signal]) -> float:
    return sum(signal.kv for signal in signals)


def _waits(signals: Sequence[Signal], max_wait_s: float) -> bool:
    return bool(signals) and sum(signal.wait_s for signal in signals) / len(signals) > max_wait_s


def decide(demand: Demand, running: int, target: int, memory: Memory, now: float) -> tuple[int, Memory]:
    """Replicas to have, when `running` of `target` run, and what to remember. Bounds and delays are the caller's."""
    if running != memory.running:
        memory = Memory(running, now, memory.wanting)
    settled = running == target and now - memory.since >= SETTLE_S
    wanted = math.ceil(demand.load)
    if demand.waits and settled:
        wanted = max(wanted, target + 1)
    if wanted > target:
        return wanted, _found_wanting(memory, target, demand.load)
    if not settled or demand.waits:
        return target, memory
    return min(target, _enough(demand.load, memory)), memory


def _enough(load: float, memory: Memory) -> int:
    """Fewest replicas that would carry the load with room to spare."""
    failed = [count for count, least in memory.wanting if load > SHRINK * least]
    return max([1, math.ceil(load / SHRINK), *(count + 1 for count in failed)])


def _found_wanting(memory: Memory, count: int, load: float) -> Memory:
    others = tuple(entry for entry in memory.wanting if entry[0] != count)
    return Memory(memory.running, memory.since, (*others, (count, load)))
