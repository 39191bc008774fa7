"""Many streaming requests at once, and when their text arrived."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from services.benchmarks.chaos_plan import Plan, question

REQUEST_TIMEOUT_S = 900.0


@dataclass(slots=True)
class Stream:
    """What a client got. `marks`: when (`time.perf_counter`) pieces of text arrived; `error` as the server put it."""

    text: str = ""
    marks: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    done: bool = False
    error: str | None = None

    def take(self, line: str) -> None:
        """One line of the event stream."""
        if line == "data: [DONE]":
            self.done = True
        elif line.startswith("data: "):
            self._chunk(json.loads(line.removeprefix("data: ")))

    def _chunk(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk:
            self.error = chunk["error"]["message"]
        for choice in chunk.get("choices", ()):
            self.finish_reason = choice["finish_reason"] or self.finish_reason
            if text := choice["delta"].get("content"):
                self.text += text
                self.marks.append(time.perf_counter())

    @property
    def outcome(self) -> tuple[str, str | None, bool, str | None]:
        """What must not depend on what happened behind the Router."""
        return self.text, self.finish_reason, self.done, self.error

    def longest_wait(self, begin: float, end: float) -> float:
        """Seconds of the longest wait for text at or after `begin` that had begun by `end`."""
        return max(
            (late - max(early, begin) for early, late in pairwise(self.marks) if begin < late and early < end),
            default=0.0,
        )


def fields(plan: Plan, model: str, index: int) -> dict[str, Any]:
    """The body of the i-th request."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": question(index)}],
        "max_tokens": plan.max_tokens,
        "ignore_eos": True,
        "stream": True,
        "decoding": {"mode": plan.modes[index % len(plan.modes)].value},
    }


async def run_streams(url: str, model: str, plan: Plan, streams: list[Stream]) -> None:
    """Fill `streams` with the answers to the first so many requests, all at once."""
    limits = httpx.Limits(max_connections=len(streams))
    async with httpx.AsyncClient(base_url=url, timeout=REQUEST_TIMEOUT_S, limits=limits) as client:
        await asyncio.gather(*(_follow(client, fields(plan, model, i), stream) for i, stream in enumerate(streams)))


async def _follow(client: httpx.AsyncClient, body: dict[str, Any], stream: Stream) -> None:
    try:
        async with client.stream("POST", "/v1/chat/completions", json=body) as reply:
            if reply.status_code != 200:
                stream.error = (await reply.aread()).decode()
                return
            async for line in reply.aiter_lines():
                stream.take(line)
    except httpx.HTTPError as error:
        stream.error = repr(error)
