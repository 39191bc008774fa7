"""The policies as Ray Serve's controller calls them. Serve applies bounds and delays around what they return."""

import time
from collections.abc import Mapping
from typing import Any

from ray.serve.config import AutoscalingContext

from services.scaling.policy import Demand, Memory, Signal, decide, proposer_demand, verifier_demand

STATE = "prove"  # the key of our memory in the policy's state


class VerifierPolicy:
    """Verifiers by busy fraction, KV and p90 queue wait."""

    def __init__(self, target_busy: float, target_kv: float, max_wait_s: float) -> None:
        self._targets = (target_busy, target_kv, max_wait_s)

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        signals = _signals(context)
        return _decide(context, signals, verifier_demand(signals, *self._targets))


class ProposerPolicy:
    """Proposers by sessions, KV and p90 queue wait."""

    def __init__(self, target_sessions: float, target_kv: float, max_wait_s: float) -> None:
        self._targets = (target_sessions, target_kv, max_wait_s)

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        signals = _signals(context)
        return _decide(context, signals, proposer_demand(signals, *self._targets))


def _signals(context: AutoscalingContext) -> list[Signal]:
    """Of every running replica that has reported all of it."""
    metrics: Mapping[str, Mapping[Any, float]] = context.aggregated_metrics or {}
    columns = [metrics.get(name, {}) for name in ("busy", "wait_s", "kv", "sessions")]
    known = set(context.running_replicas).intersection(*columns)
    return [Signal(*(column[replica] for column in columns)) for replica in known]


def _decide(context: AutoscalingContext, signals: list[Signal], demand: Demand) -> tuple[int, dict[str, Any]]:
    memory: Memory = context.policy_state.get(STATE, Memory())
    if not signals:  # nobody has reported yet
        return context.target_num_replicas, {STATE: memory}
    now = time.time() if context.current_time is None else context.current_time
    wanted, memory = decide(demand, context.current_num_replicas, context.target_num_replicas, memory, now)
    return wanted, {STATE: memory}
