"""The replicas of a running application as processes of this machine: who they are, how busy, and signals to them."""

import asyncio
import os
import signal
import urllib.request
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from prove_core.types import Role
from services.replicas.members import Members

POLL_S = 0.1
SCRAPE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Victim:
    """A replica of one role. `sessions`: how many its engine knows."""

    pid: int
    sessions: int


async def victims(members: Members, role: Role) -> list[Victim]:
    """The running replicas of a role that answer."""
    found = (await members.replicas()).get(role.value.capitalize(), [])
    facts = [dict(replica.replica_metadata) for replica in found]
    asked = (asyncio.to_thread(_sessions, f"http://{fact['host']}:{fact['metrics_port']}/metrics") for fact in facts)
    sessions = await asyncio.gather(*asked)
    return [Victim(fact["pid"], count) for fact, count in zip(facts, sessions, strict=True) if count is not None]


async def strike(members: Members, role: Role, sign: signal.Signals) -> int:
    """Signal the busiest replica of a role, as soon as there is one; its process id."""
    while True:
        for victim in sorted(await victims(members, role), key=lambda victim: -victim.sessions):
            try:
                os.kill(victim.pid, sign)
            except ProcessLookupError:  # dead already: Serve has not noticed yet
                continue
            return victim.pid
        await asyncio.sleep(POLL_S)


async def open_sessions(members: Members) -> int:
    """Sessions that the replicas of both roles still know."""
    found = [victim for role in Role for victim in await victims(members, role)]
    return sum(victim.sessions for victim in found)


def _sessions(url: str) -> int | None:
    try:
        with urllib.request.urlopen(url, timeout=SCRAPE_TIMEOUT_S) as reply:
            text = reply.read().decode()
    except OSError:
        return None
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "prove:sessions_open":
                return int(sample.value)
    return None
