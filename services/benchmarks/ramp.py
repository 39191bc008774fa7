"""`prove bench ramp`: verifiers come with the load and go with it, and no stream notices."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from statistics import median
from typing import Any

import httpx
from ray import serve

from prove_core.errors import ProveError
from services.app import APP_NAME
from services.benchmarks.ramp_load import Outcomes, RampLoad
from services.benchmarks.ramp_plan import Ramp
from services.benchmarks.ramp_watch import Seen, Watch
from services.benchmarks.report import Report
from services.config.settings import Settings
from services.launch import launch

LOOK_S = 1.0
CALM_S = 3.0

Say = Callable[[str], None]


def run(settings: Settings, plan: Ramp, mode: str, say: Say) -> Report:
    """Start the application on a Ray of its own, put the load on it, and stop it."""
    with launch(settings) as running:
        return asyncio.run(_ramp(running.url, settings, plan, mode, say))


async def _ramp(url: str, settings: Settings, plan: Ramp, mode: str, say: Say) -> Report:
    load = RampLoad(url, settings.served_name, plan, mode)
    before = await _tasks()
    began = time.monotonic()
    clients = asyncio.create_task(load.run(began))
    try:
        seen = await _watched(url, plan, load, clients, began, say)
    finally:
        clients.cancel()
    await asyncio.gather(clients, return_exceptions=True)
    figures = _figures(seen, load.outcomes, plan) | {
        "tasks_before": float(before),
        "tasks_after": float(await _tasks()),
    }
    config = {"points": plan.points, "max_tokens": plan.max_tokens, "mode": mode} | _scaling(settings)
    samples = {name: [float(asdict(one)[name]) for one in seen] for name in Seen.__slots__}
    return Report("ramp", config, samples, figures)


async def _watched(
    url: str, plan: Ramp, load: RampLoad, clients: "asyncio.Task[None]", began: float, say: Say
) -> list[Seen]:
    """Until the load is over and the verifiers are as few as at first, or the silence has lasted too long."""
    watch, seen = Watch(url), list[Seen]()
    second = 0.0
    while not (clients.done() and (_calm(seen) or second > plan.seconds + plan.silence_s)):
        await asyncio.sleep(max(0.0, LOOK_S - (time.monotonic() - began - second)) if second else 0.0)
        second = time.monotonic() - began
        try:
            seen.append(await watch.look(second, load.open))
        except httpx.HTTPError as error:  # the machine may be busier than the load alone makes it
            say(f"{second:6.1f} s  no answer to the watch: {error!r}")
            continue
        if len(seen) < 2 or seen[-1].verifiers != seen[-2].verifiers:
            say(f"{second:6.1f} s  {load.open:3d} streams  {seen[-1].verifiers} verifiers")
    return seen


def _calm(seen: Sequence[Seen]) -> bool:
    """Whether the verifiers have been as few as at first for a while."""
    if not seen or seen[-1].streams:
        return False
    return {one.verifiers for one in seen if one.second >= seen[-1].second - CALM_S} == {seen[0].verifiers}


async def _tasks() -> int:
    """Tasks of the event loops of Router and proposer, which live from the beginning to the end."""
    counts = [serve.get_deployment_handle(name, APP_NAME).tasks.remote() for name in ("Router", "Proposer")]
    return sum(await asyncio.gather(*counts))


def _figures(seen: Sequence[Seen], outcomes: Outcomes, plan: Ramp) -> dict[str, float]:
    if not seen:
        raise ProveError("the application has not answered once")
    counts = [one.verifiers for one in seen]
    begin, end = plan.plateau
    held = [one for one in seen if begin <= one.second <= end]
    return {
        "streams": float(outcomes.complete + len(outcomes.broken)),
        "complete_streams": float(outcomes.complete),
        "verifiers_before": float(counts[0]),
        "verifiers_most": float(max(counts)),
        "verifiers_after": float(counts[-1]),
        "direction_changes": float(direction_changes(counts)),
        "direction_changes_at_constant_load": float(direction_changes([one.verifiers for one in held])),
        "sessions_after": seen[-1].sessions,
        "held_pages_after": seen[-1].held_pages,
        "tokens_per_second_at_constant_load": round(median([one.tokens_per_second for one in held] or [0.0]), 2),
        "first_text_median_s": round(median(outcomes.first_text_s or [0.0]), 3),
        "first_text_most_s": round(max(outcomes.first_text_s, default=0.0), 3),
    }


def direction_changes(counts: Sequence[int]) -> int:
    """How often a number that went up then went down, or the other way round."""
    steps = [after > before for before, after in pairwise(counts) if after != before]
    return sum(first is not second for first, second in pairwise(steps))


def _scaling(settings: Settings) -> dict[str, Any]:
    verifier = settings.verifier
    assert verifier is not None
    assert verifier.autoscaling is not None
    return {"autoscaling": verifier.autoscaling.model_dump()}
