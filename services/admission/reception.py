"""Where requests wait until the replicas have room for them, and get the places that they use."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from prove_core.types import Role, TokenIds
from services.admission.gate import Gate
from services.admission.rate import Expected
from services.admission.settings import AdmissionSettings
from services.api.errors import unavailable
from services.placement.booking import Booking
from services.placement.fleet import Fleet

GIVE_UP_S = 30.0  # without a proposer for so long, nobody is kept waiting

Places = list[dict[Role, Booking]]
"""By choice, where its sessions go."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a request needs: `choices` completions of `prompt`, of `max_tokens` at most, on each of `roles`."""

    prompt: TokenIds
    max_tokens: int
    choices: int
    roles: tuple[Role, ...]
    priority: int


@dataclass(frozen=True, slots=True)
class _Taken:
    places: Places

    def close(self) -> None:
        for place in self.places:
            for booking in place.values():
                booking.close()


class Reception:
    """One gate before the fleets of all roles."""

    def __init__(self, settings: AdmissionSettings, most_running: int, fleets: Mapping[Role, Fleet]) -> None:
        self._fleets = fleets
        self._gate: Gate[_Taken] = Gate(settings, most_running)
        self._expected = Expected()

    @property
    def running(self) -> int:
        """Requests that were let in."""
        return self._gate.running

    @property
    def waiting(self) -> int:
        """Requests that were not, yet."""
        return self._gate.waiting

    @property
    def queued_tokens(self) -> int:
        """Tokens of those."""
        return self._gate.queued_tokens

    @contextlib.asynccontextmanager
    async def admitted(self, demand: Demand) -> AsyncGenerator[Places]:
        """Wait for room; inside, a request runs. Raises `ApiError`: 429 when too many wait, 503 without replicas."""
        tokens = len(demand.prompt) + self._expected.tokens(demand.max_tokens)
        self._check_up()
        taken = await self._gate.enter(
            demand.choices * tokens, demand.priority, lambda force: self._book(demand, tokens, force)
        )
        try:
            yield taken.places
        finally:
            taken.close()
            self._gate.leave(demand.choices * tokens)

    def completed(self, tokens: float) -> None:
        """A completion has ended with so many tokens: what to expect of others."""
        self._expected.observe(tokens)

    async def watch(self) -> None:
        """Follow what the replicas report, for ever."""
        await asyncio.gather(*(fleet.watch(self._reported) for fleet in self._fleets.values()))

    def _reported(self) -> None:
        try:
            self._check_up()
        except Exception as error:
            self._gate.refuse(error)
        self._gate.pump()

    def _check_up(self) -> None:
        if self._fleets[Role.PROPOSER].down_for(time.monotonic()) > GIVE_UP_S:
            raise unavailable("no proposer replica is running")

    def _book(self, demand: Demand, tokens: int, force: bool) -> _Taken | None:
        places: Places = [{} for _ in range(demand.choices)]
        for role in demand.roles:
            bookings = self._fleets[role].book(tokens, demand.prompt, demand.choices, force=force)
            if bookings is None:
                _Taken(places).close()
                return None
            for place, booking in zip(places, bookings, strict=True):
                place[role] = booking
        return _Taken(places)
