"""`GET /metrics/targets`: the list that Prometheus reads to find the replicas. The metrics themselves are not here:
behind the load balancer a scrape would meet another Router each time.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter

Targets = Callable[[], Awaitable[list[dict[str, Any]]]]


def discovery_routes(targets: Targets) -> APIRouter:
    """The route over `targets`, which may fail when the cluster cannot tell: then Prometheus keeps its last list."""
    router = APIRouter()

    @router.get("/metrics/targets")
    async def list_targets() -> list[dict[str, Any]]:
        return await targets()

    return router
