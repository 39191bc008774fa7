"""What the reception does when there is nobody to serve, and what it learns from those who were."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from prove_core.types import Role
from services.admission import reception
from services.admission.reception import Demand, Reception
from services.admission.settings import AdmissionSettings
from services.api.errors import ApiError
from services.placement.fleet import Fleet
from tests.services.toy_engine import ToyLessor, replicas, run_in_loop

BOTH = (Role.PROPOSER, Role.VERIFIER)


def _demand(tokens: int = 100, roles: tuple[Role, ...] = BOTH, choices: int = 1) -> Demand:
    return Demand((1, 2, 3), tokens, choices, roles, 0)


@contextlib.asynccontextmanager
async def _open(proposer_tokens: int = 1000, verifier_tokens: int = 1000) -> AsyncIterator[tuple[Reception, ToyLessor]]:
    """A reception that has heard from one replica of each role, and the proposer's lessor."""
    async with replicas(1, tokens=proposer_tokens) as proposers, replicas(1, tokens=verifier_tokens) as verifiers:
        lessors = {Role.PROPOSER: ToyLessor(proposers), Role.VERIFIER: ToyLessor(verifiers)}
        fleets = {
            role: Fleet(lessor, lessor.loads, page_size=16, most_sessions=100) for role, lessor in lessors.items()
        }
        for fleet in fleets.values():
            await fleet.refresh()
        desk = Reception(AdmissionSettings(), 100, fleets)
        watch = asyncio.create_task(desk.watch())
        yield desk, lessors[Role.PROPOSER]
        watch.cancel()


def test_room_is_needed_on_every_role_that_a_request_uses() -> None:
    async def run() -> None:
        async with _open(verifier_tokens=160) as (desk, _), desk.admitted(_demand()) as places:
            assert [set(place) for place in places] == [set(BOTH)]
            async with desk.admitted(_demand(roles=(Role.PROPOSER,))):
                pass
            waiting = asyncio.create_task(desk.admitted(_demand()).__aenter__())
            await asyncio.sleep(0)
            assert (desk.running, desk.waiting, desk.queued_tokens) == (1, 1, 103)
            waiting.cancel()

    run_in_loop(run())


def test_each_choice_has_places_of_its_own_and_all_are_given_back() -> None:
    async def run() -> None:
        async with _open() as (desk, _):
            for _ in range(3):
                async with desk.admitted(_demand(choices=8)) as places:
                    assert len({id(booking) for place in places for booking in place.values()}) == 16
            assert (desk.running, desk.waiting) == (0, 0)

    run_in_loop(run())


def test_without_a_proposer_for_long_nobody_is_kept_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with _open() as (desk, proposers), desk.admitted(_demand(900)):
            waiting = asyncio.create_task(desk.admitted(_demand(900)).__aenter__())
            await asyncio.sleep(0)
            assert desk.waiting == 1
            monkeypatch.setattr(reception, "GIVE_UP_S", 0.1)
            proposers.replicas.clear()
            with pytest.raises(ApiError, match="no proposer") as refused:
                await asyncio.wait_for(waiting, 10)
            assert refused.value.status == 503
            assert "Retry-After" in refused.value.headers
            with pytest.raises(ApiError, match="no proposer"):
                await desk.admitted(_demand()).__aenter__()
            assert desk.waiting == 0

    run_in_loop(run())


def test_short_completions_let_more_in() -> None:
    async def run() -> None:
        async with _open() as (desk, _), desk.admitted(_demand(8000)):
            waiting = asyncio.create_task(desk.admitted(_demand(8000)).__aenter__())
            await asyncio.sleep(0)
            assert desk.queued_tokens == 3 + 512
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            for _ in range(200):
                desk.completed(20)
            async with desk.admitted(_demand(8000)):
                assert desk.running == 2

    run_in_loop(run())
