"""Serve routes leases as wished and loses none of a request's concurrent calls. On a real Ray Serve, without models."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterator

import pytest
import ray
from ray import serve
from ray.serve.config import RequestRouterConfig
from ray.serve.handle import DeploymentHandle

from services.placement.load import NO_WISH, Load, Wish
from services.placement.request_router import WishedOrder
from services.sessions.lease import ServeLease, ServeLessor

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

MOST = 12
REPLICAS = 3


class Place:
    """A replica that leases and reports, and does nothing else."""

    def __init__(self) -> None:
        self._name = serve.get_replica_context().replica_id.unique_id
        self._open = 0

    async def lease(self, session: str, wish: Wish = NO_WISH) -> AsyncGenerator[object, None]:
        from services.channel.client import Endpoint
        from services.sessions.lease import Grant

        self._open += 1
        try:
            yield Grant(Endpoint("127.0.0.1", 1, "token"), self._name)
            await asyncio.Event().wait()
        finally:
            self._open -= 1

    async def load(self) -> Load:
        return Load(self._name, 1000, 0, self._open, 0, 0, 0, 0.0)


class Asker:
    """Takes leases as a Router does: within one request, all at once."""

    def __init__(self, places: DeploymentHandle) -> None:
        self._lessor = ServeLessor(places)

    async def names(self) -> list[str]:
        return sorted(load.replica for load in await self._lessor.loads())

    async def spread(self, count: int, wish: Wish) -> Counter[str]:
        """Where `count` concurrent leases with this wish went."""
        async with asyncio.timeout(20):
            leases: list[ServeLease] = await asyncio.gather(*(self._lessor.lease(str(i), wish) for i in range(count)))
        for lease in leases:
            lease.close()
        async with asyncio.timeout(20):
            while any(load.sessions for load in await self._lessor.loads()):
                await asyncio.sleep(0.05)
        return Counter(lease.replica for lease in leases)


@pytest.fixture(scope="module")
def asker() -> Iterator[DeploymentHandle]:
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        serve.start(proxy_location="Disabled")
        plain = {"ray_actor_options": {"num_cpus": 0}}
        places = serve.deployment(Place).options(
            num_replicas=REPLICAS,
            max_ongoing_requests=MOST,
            request_router_config=RequestRouterConfig(request_router_class=WishedOrder),
            **plain,
        )
        yield serve.run(serve.deployment(Asker).options(**plain).bind(places.bind()), name="places", route_prefix=None)
    finally:
        serve.shutdown()
        ray.shutdown()


def test_wishes_are_met_in_order_and_what_is_full_passes_on(asker: DeploymentHandle) -> None:
    names = asker.names.remote().result(timeout_s=60)
    assert len(names) == REPLICAS
    for name in names:
        others = tuple(other for other in names if other != name)
        assert asker.spread.remote(8, Wish((name, *others))).result(timeout_s=60) == {name: 8}
    spread = asker.spread.remote(MOST + 5, Wish(("nobody", names[2], names[0]))).result(timeout_s=60)
    assert spread[names[2]] >= MOST - 1
    assert spread[names[1]] == 0
    assert sum(spread.values()) == MOST + 5


def test_concurrent_calls_of_one_request_are_all_answered_and_spread_without_a_wish(asker: DeploymentHandle) -> None:
    spread = asker.spread.remote(18, NO_WISH).result(timeout_s=60)
    assert sum(spread.values()) == 18
    assert len(spread) > 1
