"""As many streaming requests at a time as a ramp says, and whether each came to its proper end."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from services.benchmarks.ramp_plan import Ramp

POLL_S = 0.1
REQUEST_TIMEOUT_S = 600.0
FINAL = ("stop", "length")


@dataclass(slots=True)
class Outcomes:
    """Streams that ended as they should, with what their first token took, and what went wrong with the others."""

    complete: int = 0
    first_text_s: list[float] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


class RampLoad:
    """Clients of one application; each asks one question after another while its turn lasts."""

    def __init__(self, url: str, model: str, plan: Ramp, mode: str) -> None:
        self._url = url
        self._model = model
        self._plan = plan
        self._mode = mode
        self._asked = 0
        self.outcomes = Outcomes()
        self.open = 0

    async def run(self, began: float) -> None:
        """Until the ramp is over and every stream has ended. `began`: by `time.monotonic`."""
        most = round(max(streams for _, streams in self._plan.points))
        limits = httpx.Limits(max_connections=most)
        async with httpx.AsyncClient(base_url=self._url, timeout=REQUEST_TIMEOUT_S, limits=limits) as client:
            await asyncio.gather(*(self._client(client, index, began) for index in range(most)))

    async def _client(self, client: httpx.AsyncClient, index: int, began: float) -> None:
        while (second := time.monotonic() - began) < self._plan.seconds:
            if index >= self._plan.streams(second):
                await asyncio.sleep(POLL_S)
                continue
            self.open += 1
            try:
                await self._follow(client)
            except httpx.HTTPError as error:
                self.outcomes.broken.append(repr(error))
            finally:
                self.open -= 1

    async def _follow(self, client: httpx.AsyncClient) -> None:
        sent, first, reason, done = time.monotonic(), None, None, False
        async with client.stream("POST", "/v1/chat/completions", json=self._body()) as reply:
            if reply.status_code != 200:
                self.outcomes.broken.append((await reply.aread()).decode())
                return
            async for line in reply.aiter_lines():
                done = done or line == "data: [DONE]"
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line.removeprefix("data: "))
                for choice in chunk.get("choices", ()):
                    reason = choice["finish_reason"] or reason
                    first = first or (time.monotonic() if choice["delta"].get("content") else None)
        if not done or reason not in FINAL:
            self.outcomes.broken.append(f"ended with {reason}, [DONE] {done}")
            return
        self.outcomes.complete += 1
        if first is not None:
            self.outcomes.first_text_s.append(first - sent)

    def _body(self) -> dict[str, Any]:
        self._asked += 1
        question = f"A baker fills {3 + self._asked % 97} trays with 8 rolls each and sells 9. How many are left?"
        return {
            "model": self._model,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": self._plan.max_tokens,
            "ignore_eos": True,
            "stream": True,
            "decoding": {"mode": self._mode},
        }
