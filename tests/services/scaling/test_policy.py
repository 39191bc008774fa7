"""How many replicas a load asks for: bounded, monotone, and still under a constant load."""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ray.serve._private.autoscaling_state import _resolve_policy_callable
from ray.serve.config import AutoscalingConfig, AutoscalingContext

from services.scaling.deploy import autoscaling_config
from services.scaling.policy import Demand, Memory, Signal, decide, proposer_demand, verifier_demand
from services.scaling.settings import ProposerAutoscaling, RouterAutoscaling, VerifierAutoscaling

TARGET_BUSY = 0.7
MOST = 12
LOADS = st.floats(0, MOST * TARGET_BUSY)
MEMORIES = st.builds(
    Memory,
    running=st.integers(1, 8),
    since=st.floats(0, 100),
    wanting=st.lists(st.tuples(st.integers(1, 8), st.floats(0, 8)), unique_by=lambda entry: entry[0]).map(tuple),
)


def _verifiers(load: float, count: int, wobble: float = 1.0) -> Demand:
    """`count` replicas that share a load of `load` busy replicas; a full queue forms on those that are always busy."""
    busy = min(1.0, load * wobble / count)
    return verifier_demand([Signal(busy, 0.5 if busy > 0.95 else 0.01, 0.1, 3)] * count, TARGET_BUSY, 0.8, 0.2)


def _trajectory(demand: Callable[[int, int], Demand], start: int, seconds: int = 300, startup: int = 7) -> list[int]:
    """Targets over time as Serve would set them: 3 s of wanting more, 10 s of wanting fewer, `startup` s to start."""
    target, running, memory = start, start, Memory()
    path, since, ready = [target], 0, 0
    direction = 0
    for now in range(seconds):
        if running < target and now >= ready:
            running = target
        running = min(running, target)
        wanted, memory = decide(demand(running, now), running, target, memory, float(now))
        wanted = min(max(wanted, 1), MOST)
        sign = (wanted > target) - (wanted < target)
        if sign != direction:
            direction, since = sign, now
        if sign and now - since >= (3 if sign > 0 else 10):
            ready = now + startup
            target, direction = wanted, 0
        path.append(target)
    return path


def _turns(path: list[int]) -> int:
    steps = [1 if b > a else -1 for a, b in pairwise(path) if a != b]
    return sum(a != b for a, b in pairwise(steps))


@given(load=LOADS, start=st.integers(1, MOST), seed=st.integers(0, 10**6))
def test_a_constant_load_changes_direction_once_at_most(load: float, start: int, seed: int) -> None:
    chance = random.Random(seed)
    path = _trajectory(lambda running, now: _verifiers(load, running, chance.uniform(0.93, 1.07)), start)
    assert _turns(path) <= 1


@given(load=LOADS, start=st.integers(1, MOST))
def test_a_constant_load_gets_what_it_needs_and_little_more(load: float, start: int) -> None:
    path = _trajectory(lambda running, now: _verifiers(load, running), start)
    assert len(set(path[-100:])) == 1, "still changing after minutes"
    end = path[-1]
    assert load / end <= TARGET_BUSY + 1e-6
    assert end <= load / TARGET_BUSY / 0.75 + 2


@given(load=st.floats(1, 8), start=st.integers(1, MOST))
def test_a_burst_and_then_silence_return_to_the_minimum(load: float, start: int) -> None:
    path = _trajectory(lambda running, now: _verifiers(load if now < 120 else 0, running), start)
    assert max(path) > 1
    assert path[-1] == 1


@given(
    loads=st.tuples(st.floats(0, 10), st.floats(0, 10)),
    waits=st.tuples(st.booleans(), st.booleans()),
    running=st.integers(1, 8),
    starting=st.integers(0, 3),
    memory=MEMORIES,
    now=st.floats(0, 200),
)
def test_more_load_never_gets_fewer(
    loads: tuple[float, float],
    waits: tuple[bool, bool],
    running: int,
    starting: int,
    memory: Memory,
    now: float,
) -> None:
    less, more = (Demand(min(loads), min(waits)), Demand(max(loads), max(waits)))
    target = running + starting
    assert decide(less, running, target, memory, now)[0] <= decide(more, running, target, memory, now)[0]
    assert decide(less, running, target, memory, now)[0] >= 1


def test_nothing_changes_while_replicas_start() -> None:
    memory = Memory(running=1, since=0.0)
    assert decide(Demand(1.4, waits=True), 1, 2, memory, 60.0)[0] == 2


def test_waiting_counts_on_average_so_that_sessions_which_stay_put_do_not_ask_for_ever_more() -> None:
    crowded, idle = Signal(1.0, 0.6, 0.5, 20), Signal(0.0, 0.0, 0.0, 0)
    assert verifier_demand([crowded], TARGET_BUSY, 0.8, 0.2).waits
    assert not verifier_demand([crowded, idle, idle, idle], TARGET_BUSY, 0.8, 0.2).waits


def test_a_replica_is_full_by_sessions_or_by_pages() -> None:
    assert verifier_demand([Signal(0.1, 0, 0.6, 2)] * 2, TARGET_BUSY, 0.8, 1).load == pytest.approx(1.5)
    few_and_long, many_and_short = Signal(1, 0, 0.8, 2), Signal(1, 0, 0.1, 16)
    assert proposer_demand([few_and_long] * 2, 16, 0.4, 1).load == 4
    assert proposer_demand([many_and_short] * 2, 8, 0.8, 1).load == 4


def _context(config: AutoscalingConfig, metrics: dict[str, dict[str, float]], state: dict[str, object]) -> object:
    return AutoscalingContext(
        deployment_id=None,
        deployment_name="Verifier",
        app_name="prove",
        current_num_replicas=2,
        target_num_replicas=2,
        running_replicas=["a", "b"],
        total_num_requests=0,
        total_queued_requests=0,
        aggregated_metrics=metrics,
        raw_metrics=None,
        capacity_adjusted_min_replicas=1,
        capacity_adjusted_max_replicas=4,
        policy_state=state,
        last_scale_up_time=None,
        last_scale_down_time=None,
        current_time=100.0,
        config=config,
    )


def test_serve_calls_the_policies_with_what_replicas_report() -> None:
    metrics = {
        "busy": {"a": 1.0, "b": 0.9, "gone": 1.0},
        "wait_s": {"a": 0.0, "b": 0.0, "gone": 0.0},
        "kv": {"a": 0.1, "b": 0.1, "gone": 0.1},
        "sessions": {"a": 30.0, "b": 20.0, "gone": 90.0},
    }
    for settings, wanted in ((VerifierAutoscaling(), 3), (ProposerAutoscaling(target_sessions=10), 5)):
        config = autoscaling_config(settings)
        policy = _resolve_policy_callable(config.policy)
        replicas, state = policy(_context(config, metrics, {}))
        assert replicas == wanted
        assert policy(_context(config, metrics, state))[0] == wanted
        assert policy(_context(config, {}, state))[0] == 2, "without reports nothing changes"


def test_routers_scale_on_ongoing_requests() -> None:
    config = autoscaling_config(RouterAutoscaling(max=4, target_ongoing_requests=32))
    assert config.policy.is_default_policy_function()
    assert (config.max_replicas, config.target_ongoing_requests) == (4, 32)
