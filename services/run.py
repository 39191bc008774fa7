"""A planned request under way: its choices run side by side, and their text becomes one stream of events."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from transformers import PreTrainedTokenizerBase

from prove_core.decoding.sampling import choice_seed
from prove_core.statistics import CompletionStatistics
from prove_core.text.completion import CompletionText, TextStep
from prove_core.types import (
    DecodingParams,
    Finished,
    FinishReason,
    GenerateRequest,
    Limits,
    Role,
    SamplingParams,
    Step,
    TokenIds,
)
from services.api.errors import timed_out
from services.api.logprobs import content_scores
from services.api.replies import Head, Metrics, SpeculativeDecoding, Usage
from services.api.streaming import Delta, Ended, Event, Events, Summary
from services.api.trace import CommitTrace
from services.metrics.requests import RequestMeter
from services.placement.booking import Booking
from services.sessions.degrade import Degraded
from services.sessions.driver import complete
from services.sessions.factory import SessionFactory
from services.telemetry.origin import Origin


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked request: `head.choices` completions of `prompt`. `roles`: those that the mode uses.

    `timeout_s`: from its arrival to its last token. Of lower `priority` comes earlier.
    """

    origin: Origin
    head: Head
    prompt: TokenIds
    params: DecodingParams
    limits: Limits
    sampling: SamplingParams | None
    stop: tuple[str, ...]
    roles: tuple[Role, ...]
    timeout_s: float
    priority: int = 0


class RequestRun:
    """One request under way: a task per choice feeds one queue, so that a slow client holds up no pass."""

    def __init__(
        self,
        plan: Plan,
        places: Sequence[Mapping[Role, Booking]],
        sessions: SessionFactory,
        tokenizer: PreTrainedTokenizerBase,
        meter: RequestMeter,
    ) -> None:
        """`places`: by choice, where its sessions are opened."""
        self._plan = plan
        self._places = places
        self._sessions = sessions
        self._tokenizer = tokenizer
        self._meter = meter
        self._arrived = plan.origin.arrived
        self._first_token_s: float | None = None
        self._queue: asyncio.Queue[Event | Exception] = asyncio.Queue()
        self._statistics = [CompletionStatistics(plan.params.mode) for _ in range(plan.head.choices)]

    async def events(self) -> Events:
        """What happens, `Summary` last. Raises the first failure of any choice. Closing it ends all of them."""
        tasks = [asyncio.create_task(self._guarded(index)) for index in range(self._plan.head.choices)]
        try:
            running = len(tasks)
            while running:
                event = await self._queue.get()
                if isinstance(event, Exception):
                    raise event
                running -= isinstance(event, Ended)
                yield event
            yield self._summary()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _guarded(self, index: int) -> None:
        try:
            async with asyncio.timeout(self._plan.timeout_s - (time.perf_counter() - self._arrived)):
                await self._choice(index)
        except TimeoutError:
            self._queue.put_nowait(timed_out(self._plan.timeout_s))
        except Exception as error:
            self._queue.put_nowait(error)

    async def _choice(self, index: int) -> None:
        plan = self._plan
        sampling = plan.sampling and replace(plan.sampling, seed=choice_seed(plan.sampling.seed, index))
        request = GenerateRequest(
            plan.origin.session(plan.head.id, index), plan.prompt, plan.params, plan.limits, sampling
        )
        places = self._places[index]
        sessions = {role: self._sessions.make(request.session, role, lessor) for role, lessor in places.items()}
        text = CompletionText(self._tokenizer, plan.stop, min_tokens=plan.limits.min_tokens)
        try:
            async with contextlib.aclosing(complete(request, sessions, fallback=self._sessions.fallback)) as events:
                async for event in events:
                    if self._tell(index, text, event):
                        return
        finally:
            for session in sessions.values():
                session.close()
            for booking in places.values():
                booking.close()

    def _tell(self, index: int, text: CompletionText, event: Step | Finished | Degraded) -> bool:
        """Pass one event of a choice on as text; whether it was the last."""
        if isinstance(event, Degraded):
            if all(choice.degraded_from is None for choice in self._statistics):
                self._sessions.metrics.degraded_request()
            self._statistics[index].degraded()
            return False
        if isinstance(event, Finished):
            self._statistics[index].ended(event)
            self._meter.choices[index].ended(event.reason, event.cost)
            self._say(index, text.finish())
            self._queue.put_nowait(Ended(index, event.reason))
            return True
        for booking in self._places[index].values():
            booking.grew(len(event.tokens))
        step = text.feed(event)
        if self._first_token_s is None and step.step.tokens:
            self._first_token_s = time.perf_counter() - self._arrived
        self._statistics[index].add(step.step)
        self._meter.choices[index].add(step.step)
        self._tell_commit(index, step)
        if step.stopped:
            self._meter.choices[index].ended(FinishReason.STOP)
            self._queue.put_nowait(Ended(index, FinishReason.STOP))
        return step.stopped

    def _tell_commit(self, index: int, step: TextStep) -> None:
        trace = CommitTrace.of(step, self._statistics[index].cost.cycles) if self._plan.params.trace else None
        sampling = self._plan.sampling
        asked = sampling is not None and sampling.logprobs is not None
        delta = Delta(index, step.text, trace, content_scores(self._tokenizer, step.step) if asked else None)
        if delta:
            self._queue.put_nowait(delta)

    def _say(self, index: int, text: str) -> None:
        if text:
            self._queue.put_nowait(Delta(index, text))

    def _summary(self) -> Summary:
        tokens = sum(choice.committed_tokens for choice in self._statistics)
        report = SpeculativeDecoding.of(
            self._statistics,
            total_seconds=time.perf_counter() - self._arrived,
            first_token_seconds=self._first_token_s,
        )
        return Summary(Usage.of(len(self._plan.prompt), tokens), Metrics(speculative_decoding=report))
