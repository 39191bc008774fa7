"""The ranks of a replica as rank 0 watches them, without Ray: actors are stand-ins whose calls this test answers."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayTaskError

from prove_core.errors import CheckpointError, RanksLost
from prove_core.model.place import Place
from services.replicas import ranks
from services.replicas.ranks import RankFacts, RankGroup
from tests.services.toy_engine import run_in_loop


@dataclass
class _Method:
    calls: list["asyncio.Future[Any]"] = field(default_factory=list)

    def remote(self) -> "asyncio.Future[Any]":
        self.calls.append(asyncio.get_running_loop().create_future())
        return self.calls[-1]


@dataclass
class _Actor:
    run: _Method = field(default_factory=_Method)
    facts: _Method = field(default_factory=_Method)

    def answer(self) -> None:
        self.facts.calls[-1].set_result(RankFacts(1, 1, "node", ()))


class _Store:
    port = 1


def _group(count: int = 1) -> tuple[RankGroup, list[_Actor]]:
    actors = [_Actor() for _ in range(count)]
    return RankGroup(actors, Place(0, count + 1, "", "", 0), _Store()), actors


async def _settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_rank_that_answers_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "SILENCE_S", 0.0)

    async def main() -> None:
        group, (actor,) = _group()
        for _ in range(3):
            assert await group.failure() is None
            await _settled()
            actor.answer()
            await _settled()
        assert len(actor.facts.calls) == 3, "one question at a time"

    run_in_loop(main())


def test_a_silent_rank_is_a_failure_but_only_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        group, (_, silent) = _group(2)
        assert await group.failure() is None
        await _settled()
        assert await group.failure() is None, "it has time"
        monkeypatch.setattr(ranks, "SILENCE_S", 0.0)
        await asyncio.sleep(0.01)
        assert await group.failure() == "rank 1 has not answered for 0 s"
        assert len(silent.facts.calls) == 1, "nobody piles up questions"

    run_in_loop(main())


@pytest.mark.parametrize("ending", [ActorDiedError(), None])
def test_a_rank_that_has_ended_is_a_failure(ending: Exception | None) -> None:
    async def main() -> None:
        group, (_, actor) = _group(2)
        await _settled()
        if ending is None:
            actor.run.calls[0].set_result(None)
        else:
            actor.run.calls[0].set_exception(ending)
        await _settled()
        reason = await group.failure()
        assert reason is not None
        assert reason.startswith("rank 2 died: " if ending else "rank 2 has ended")
        assert "\n" not in reason

    run_in_loop(main())


def test_what_a_rank_cannot_load_is_what_the_replica_says() -> None:
    async def main() -> None:
        group, (actor,) = _group()
        await _settled()
        cause = CheckpointError("no such file")
        actor.run.calls[0].set_exception(RayTaskError("run", "trace", cause))
        with pytest.raises(CheckpointError, match="no such file"):
            await group.beside(asyncio.Event().wait())

    run_in_loop(main())


def test_rank_0s_own_result_and_error_come_through() -> None:
    async def main() -> None:
        group, _ = _group()
        assert await group.beside(asyncio.sleep(0, 7)) == 7

        async def fail() -> None:
            raise RanksLost("here")

        with pytest.raises(RanksLost, match="here"):
            await group.beside(fail())

    run_in_loop(main())
