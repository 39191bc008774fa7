"""`prove bench chaos`: streams of a real application while its replicas are killed and suspended.

Every text must equal that of the same request in an undisturbed run just before. What an event costs is how long
streams waited for text from then on, until the next event.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from services.app import APP_NAME
from services.benchmarks.chaos_plan import Event, Plan
from services.benchmarks.chaos_streams import Stream, run_streams
from services.benchmarks.report import Report
from services.benchmarks.victims import open_sessions, strike
from services.config.settings import Settings
from services.launch import launch
from services.replicas.members import Members

POLL_S = 0.05
CLOSE_TIMEOUT_S = 10.0

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Struck:
    """An event that took place at `moment` (`time.perf_counter`)."""

    event: Event
    moment: float


def run(settings: Settings, plan: Plan, say: Say) -> Report:
    """Start the application on a Ray of its own, run `plan` undisturbed, then disturbed, and stop it."""
    with launch(settings) as running:
        return asyncio.run(_Chaos(running.url, settings.served_name, plan, say).report())


class _Chaos:
    def __init__(self, url: str, model: str, plan: Plan, say: Say) -> None:
        self._url = url
        self._model = model
        self._plan = plan
        self._say = say
        self._members = Members(APP_NAME)

    async def report(self) -> Report:
        """Both runs and what came of them."""
        calm, calm_seconds = await self._timed([Stream() for _ in range(self._plan.streams)])
        self._say(f"undisturbed: {calm_seconds:.1f} s")
        stormy = [Stream() for _ in range(self._plan.streams)]
        storm = asyncio.create_task(self._storm(stormy, sum(len(stream.text) for stream in calm)))
        stormy, seconds = await self._timed(stormy)
        struck = await storm
        after, _ = await self._timed([Stream() for _ in self._plan.modes])
        left = await self._left()
        figures: dict[str, float] = {
            "streams": len(stormy),
            "identical_streams": _identical(calm, stormy),
            "failed_streams": sum(stream.error is not None or not stream.done for stream in stormy),
            "events": len(struck),
            "identical_after": _identical(calm, after),
            "streams_after": len(after),
            "sessions_left": left,
            "seconds_undisturbed": round(calm_seconds, 2),
            "seconds": round(seconds, 2),
            "wait_undisturbed_s": round(max(stream.longest_wait(0.0, time.perf_counter()) for stream in calm), 2),
        }
        samples = _waits(stormy, struck)
        figures |= {f"recovery_{name}_s": round(max(waits), 2) for name, waits in samples.items()}
        figures |= {f"recovery_{name}_median_s": round(median(waits), 2) for name, waits in samples.items()}
        return Report("chaos", _described(self._plan), samples, figures)

    async def _timed(self, streams: list[Stream]) -> tuple[list[Stream], float]:
        began = time.perf_counter()
        await run_streams(self._url, self._model, self._plan, streams)
        return streams, time.perf_counter() - began

    async def _storm(self, streams: Sequence[Stream], characters: int) -> list[Struck]:
        """Carry out the events, each at its share of the text; over once all are, suspended processes included."""
        struck: list[Struck] = []
        wakings = []
        for event in self._plan.events:
            while sum(len(stream.text) for stream in streams) < event.at * characters:
                await asyncio.sleep(POLL_S)
            pid = await strike(self._members, event.role, event.signal)
            struck.append(Struck(event, time.perf_counter()))
            self._say(f"{event.name} {pid}")
            if event.signal is signal.SIGSTOP:
                wakings.append(asyncio.create_task(_wake(pid, event.seconds)))
        await asyncio.gather(*wakings)
        return struck

    async def _left(self) -> int:
        """Sessions that nobody closed, after a moment."""
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        while (left := await open_sessions(self._members)) and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
        return left


async def _wake(pid: int, seconds: float) -> None:
    await asyncio.sleep(seconds)
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:  # replaced meanwhile
        return


def _identical(calm: Sequence[Stream], other: Sequence[Stream]) -> int:
    pairs = zip(calm, other, strict=False)
    return sum(before.outcome == after.outcome and before.error is None for before, after in pairs)


def _waits(streams: Sequence[Stream], struck: Sequence[Struck]) -> dict[str, list[float]]:
    """By event: each running stream's longest wait for text that began before the next one."""
    moments = [at.moment for at in struck] + [time.perf_counter()]
    return {
        f"{at.event.name}_{number}": [
            stream.longest_wait(at.moment, until) for stream in streams if stream.marks and stream.marks[-1] > at.moment
        ]
        or [0.0]
        for number, (at, until) in enumerate(zip(struck, moments[1:], strict=True), start=1)
    }


def _described(plan: Plan) -> dict[str, Any]:
    return {
        "max_tokens": plan.max_tokens,
        "modes": [mode.value for mode in plan.modes],
        "events": [f"{event.name} at {event.at:g}" for event in plan.events],
    }
