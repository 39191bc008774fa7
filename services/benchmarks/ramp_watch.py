"""What Prometheus would see of a running application, once a second."""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from prove_core.types import Role

SCRAPE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Replica:
    """The samples of one replica, and its labels. None: it runs, and has not answered in time."""

    name: str
    role: str
    samples: list[Sample] | None

    @property
    def answered(self) -> bool:
        """Whether there are samples."""
        return self.samples is not None

    def value(self, metric: str, **labels: str) -> float:
        """The sum of the metric's samples that have these labels."""
        wanted = labels.items()
        return sum(s.value for s in self.samples or () if s.name == f"prove:{metric}" and wanted <= s.labels.items())

    def buckets(self, metric: str) -> dict[float, float]:
        """The cumulative counts of a histogram by upper bound."""
        name = f"prove:{metric}_bucket"
        return {float(sample.labels["le"]): sample.value for sample in self.samples or () if sample.name == name}


@dataclass(frozen=True, slots=True)
class Seen:
    """One moment of the application. Rates are those since the moment before."""

    second: float
    streams: int
    verifiers: int
    busy: float
    wait_p90_s: float
    tokens_per_second: float
    waiting: float
    sessions: float
    held_pages: float


class Watch:
    """Successive scrapes of one application."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._second = 0.0
        self._busy: dict[str, float] = {}
        self._buckets: dict[str, dict[float, float]] = {}
        self._tokens = 0.0

    async def look(self, second: float, streams: int) -> Seen:
        """Scrape all replicas now. Raises `httpx.HTTPError` when the application does not answer in time."""
        running = await scrape(self._url)
        replicas = [replica for replica in running if replica.answered]
        elapsed = max(second - self._second, 1e-3)
        verifiers = [replica for replica in replicas if replica.role == Role.VERIFIER.value]
        routers = [replica for replica in replicas if replica.role == "router"]
        engines = [replica for replica in replicas if replica.role != "router"]
        busy = {replica.name: replica.value("busy_seconds_total") for replica in verifiers}
        buckets = {replica.name: replica.buckets("queue_wait_seconds") for replica in verifiers}
        tokens = sum(replica.value("generation_tokens_total") for replica in routers)
        shares = [(value - self._busy.get(name, value)) / elapsed for name, value in busy.items()]
        seen = Seen(
            second=round(second, 2),
            streams=streams,
            verifiers=sum(replica.role == Role.VERIFIER.value for replica in running),
            busy=min(1.0, sum(shares) / max(len(shares), 1)),
            wait_p90_s=_quantile(_grown(self._buckets, buckets), 0.9),
            tokens_per_second=max(0.0, tokens - self._tokens) / elapsed,
            waiting=sum(replica.value("requests_waiting") for replica in routers),
            sessions=sum(replica.value("sessions_open") for replica in engines),
            held_pages=sum(replica.value("kv_pages", state="held") for replica in engines),
        )
        self._second, self._busy, self._buckets = second, busy, buckets
        self._tokens = max(tokens, self._tokens)
        return seen


async def scrape(url: str) -> list[Replica]:
    """All running replicas."""
    async with httpx.AsyncClient(timeout=SCRAPE_TIMEOUT_S) as client:
        targets = (await client.get(f"{url}/metrics/targets")).raise_for_status().json()
        return await asyncio.gather(*(_scrape_one(client, target) for target in targets))


async def _scrape_one(client: httpx.AsyncClient, target: Mapping[str, object]) -> Replica:
    labels, addresses = target["labels"], target["targets"]
    assert isinstance(labels, dict)
    assert isinstance(addresses, list)
    try:
        text = (await client.get(f"http://{addresses[0]}/metrics")).text
    except httpx.HTTPError:  # it is busy, or has just gone
        return Replica(labels["replica"], labels["role"], None)
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return Replica(labels["replica"], labels["role"], samples)


def _grown(before: Mapping[str, Mapping[float, float]], after: Mapping[str, Mapping[float, float]]) -> Counter[float]:
    """Cumulative counts that came since `before`, all replicas together."""
    total: Counter[float] = Counter()
    for name, buckets in after.items():
        for bound, count in buckets.items():
            total[bound] += int(count - before.get(name, {}).get(bound, 0))
    return total


def _quantile(buckets: Mapping[float, float], share: float) -> float:
    """The upper bound of the bucket where that share is reached; 0 without counts."""
    most = max(buckets.values(), default=0)
    if not most:
        return 0.0
    reached = min(bound for bound, count in buckets.items() if count >= share * most)
    return reached if math.isfinite(reached) else max(bound for bound in buckets if math.isfinite(bound))
