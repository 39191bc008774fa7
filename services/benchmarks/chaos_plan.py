"""What `prove bench chaos` does: how many streams, in which modes, and what happens to the replicas meanwhile."""

import signal
from dataclasses import dataclass, replace
from typing import Any

from prove_core.types import Mode, Role
from services.config.settings import Settings, parse_settings

TRADES = ("baker", "printer", "gardener", "carpenter", "teacher", "courier", "fisher")


@dataclass(frozen=True, slots=True)
class Event:
    """`signal` to a replica of `role` once this share of all text has arrived; SIGSTOP ends after `seconds`."""

    role: Role
    signal: signal.Signals
    at: float
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """For figures: verifier_sigkill."""
        return f"{self.role.value}_{self.signal.name.lower()}"


@dataclass(frozen=True, slots=True)
class Plan:
    """One run. Stream i asks the i-th question in the i-th mode, round and round."""

    streams: int
    max_tokens: int
    modes: tuple[Mode, ...]
    events: tuple[Event, ...]


EVENTS = (
    Event(Role.VERIFIER, signal.SIGKILL, 0.08),
    Event(Role.VERIFIER, signal.SIGKILL, 0.25),
    Event(Role.VERIFIER, signal.SIGKILL, 0.40),
    Event(Role.PROPOSER, signal.SIGKILL, 0.55),
    Event(Role.VERIFIER, signal.SIGSTOP, 0.75, seconds=20.0),
)
MODES = (Mode.PROVE, Mode.LOSSLESS, Mode.PROVE, Mode.SPECULATIVE, Mode.PROVE, Mode.FUSED, Mode.PROVE, Mode.MARS)
FULL = Plan(streams=100, max_tokens=48, modes=MODES, events=EVENTS)
QUICK = replace(FULL, streams=16, max_tokens=192)  # fewer are sooner done


def chaos_settings(
    proposer: dict[str, Any], verifier: dict[str, Any], replicas: tuple[int, int], silence_limit_s: float = 5.0
) -> Settings:
    """The application under test, from the roles' `engine` settings and their replicas, proposer first.

    It never degrades: then all texts must be equal.
    """
    patient = {"degrade": "fail", "verifier_deadline_s": 300, "patience_s": 300}
    return parse_settings(
        {
            "port": 0,
            "proposer": {"engine": proposer, "replicas": replicas[0]},
            "verifier": {"engine": verifier, "replicas": replicas[1]},
            "healing": {**patient, "silence_limit_s": silence_limit_s},
        },
        "chaos",
    )


def question(index: int) -> str:
    """A question of its own for each stream."""
    trade = TRADES[index % len(TRADES)]
    return f"A {trade} packs {3 + index} boxes of {5 + index % 9} pieces and sells {2 + index % 4}. How many are left?"
