"""The other ranks of a tensor-parallel replica: an actor in each further bundle of the replica's placement group.

Serve's replica is rank 0, in the first bundle. Passes reach the others over their process group; actor calls are for
starting and for their health alone. They die with the replica, which owns them, and the group fails as one.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from prove_core.errors import RanksLost
from prove_core.model.place import Place
from prove_core.openmp import wait_briefly
from services.config.settings import ModelSettings
from services.telemetry.logs import configure
from services.telemetry.settings import LoggingSettings

if TYPE_CHECKING:  # torch must not be imported before `wait_briefly`, nor on an event loop: it takes seconds
    from prove_core.model.ranks import Ranks, Store

SILENCE_S = 30.0  # a rank that has not answered for so long hangs

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RankFacts:
    """Where a rank runs."""

    rank: int
    pid: int
    node: str
    gpus: tuple[int, ...]


def own_facts(rank: int) -> RankFacts:
    """Those of this process."""
    context = ray.get_runtime_context()
    gpus = context.get_accelerator_ids().get("GPU", [])
    return RankFacts(rank, os.getpid(), context.get_node_id(), tuple(int(gpu) for gpu in gpus))


class RankWorker:
    """The actor of one rank beyond the first."""

    def __init__(
        self, role: str, settings: dict[str, Any], logs: LoggingSettings, rank: int, size: int, store: tuple[str, int]
    ) -> None:
        configure(logs, role=role, rank=str(rank))
        self._settings = ModelSettings.model_validate(settings)
        self._place = Place(rank, size, ray.util.get_node_ip_address(), *store)

    async def run(self) -> None:
        """Load this rank's share and take part in every pass, until rank 0 is gone. Raises as loading does."""
        await asyncio.to_thread(self._run)

    async def facts(self) -> RankFacts:
        """Answered while passes run: a sign of life."""
        return own_facts(self._place.rank)

    def _run(self) -> None:
        ranks = joined(self._settings, self._place)
        from prove_core.engine.build import follow_engine  # noqa: PLC0415

        follow_engine(self._settings.engine, ranks, memory_fraction=self._settings.memory_fraction)


def joined(settings: ModelSettings, place: Place) -> "Ranks":
    """Prepare this process for passes and meet the other ranks."""
    use_cores(place.size)
    from prove_core.model.loader import pick_device  # noqa: PLC0415
    from prove_core.model.ranks import join_ranks  # noqa: PLC0415

    model = settings.engine.model
    return join_ranks(place, pick_device(model.device), deterministic=model.deterministic)


def use_cores(ranks: int) -> None:
    """Let passes of this process use its share of the cores among `ranks` of one node.

    Ray sets OMP_NUM_THREADS to the actor's num_cpus, a matter of placement. Not as `model.threads`, which would fix
    their number: passes find out how many of them pay.
    """
    wait_briefly()
    import torch  # noqa: PLC0415

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks))


class _Actor(Protocol):
    """A handle of `RankWorker`."""

    run: Any
    facts: Any


class RankGroup:
    """Ranks 1 and further, as rank 0 sees them."""

    def __init__(self, actors: Sequence[_Actor], place: Place, store: "Store") -> None:
        self.place = place
        self._store = store  # ends with this object
        self._actors = actors
        self._runs = [asyncio.ensure_future(_awaited(actor.run.remote())) for actor in actors]
        self._pings: dict[int, tuple[float, asyncio.Future[RankFacts]]] = {}

    @classmethod
    async def start(
        cls, role: str, settings: dict[str, Any], bundles: Sequence[dict[str, float]], logs: LoggingSettings
    ) -> "RankGroup":
        """Start the actors in the bundles behind the first of this replica's placement group."""
        group = ray.util.get_current_placement_group()
        if group is None:
            raise RanksLost("tensor_parallel needs the placement group of this replica, and it has none")
        address = ray.util.get_node_ip_address()
        store = await asyncio.to_thread(_open_store, address)
        size = len(bundles)
        actors = [
            _actor(group, rank, bundles[rank]).remote(role, settings, logs, rank, size, (address, store.port))
            for rank in range(1, size)
        ]
        return cls(actors, Place(0, size, address, address, store.port), store)

    async def beside(self, work: Awaitable[T]) -> T:
        """The result of rank 0's own `work`. Raises what another rank raises meanwhile."""
        own = asyncio.ensure_future(work)
        await asyncio.wait({own, *self._runs}, return_when=asyncio.FIRST_COMPLETED)
        if not own.done():
            own.cancel()
            await self._raise()
        return await own

    async def failure(self) -> str | None:
        """Why the group cannot go on, or None. Asks each rank for a sign of life, and does not wait for it."""
        try:
            await self._raise()
        except Exception as error:
            return " ".join(str(error).split())
        now = time.monotonic()
        for rank, actor in enumerate(self._actors, start=1):
            begun, ping = self._pings.get(rank, (now, None))
            if ping is None or ping.done():
                with contextlib.suppress(RayError):  # a dead rank is found by its run
                    if ping is not None:
                        ping.result()
                self._pings[rank] = (now, asyncio.ensure_future(_awaited(actor.facts.remote())))
            elif now - begun > SILENCE_S:
                return f"rank {rank} has not answered for {SILENCE_S:g} s"
        return None

    async def facts(self) -> list[RankFacts]:
        """Where all ranks run, this one first."""
        others = await asyncio.gather(*(_awaited(actor.facts.remote()) for actor in self._actors))
        return [own_facts(0), *others]

    async def _raise(self) -> None:
        """Raise why a rank has ended, if one has."""
        for rank, run in enumerate(self._runs, start=1):
            if run.done():
                try:
                    await run
                except RayTaskError as error:
                    raise error.cause from error
                except RayError as error:
                    raise RanksLost(f"rank {rank} died: {' '.join(str(error).split())}") from error
                raise RanksLost(f"rank {rank} has ended")


async def _awaited(reference: Awaitable[T]) -> T:
    """Ray's references are awaitable, but no coroutines."""
    return await reference


def _open_store(address: str) -> "Store":
    wait_briefly()
    from prove_core.model.ranks import open_store  # noqa: PLC0415

    return open_store(address)


def _actor(group: PlacementGroup, rank: int, bundle: dict[str, float]) -> Any:
    custom = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU", "memory")}
    return ray.remote(RankWorker).options(
        num_cpus=bundle.get("CPU", 0),
        num_gpus=bundle.get("GPU", 0),
        resources=custom,
        scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank),
    )
