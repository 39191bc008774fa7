"""What `prove bench ramp` does: how many streams at which time, and the application under them."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from services.config.settings import Settings, parse_settings


@dataclass(frozen=True, slots=True)
class Ramp:
    """`points`: (second, streams), joined by straight lines; no load after the last.

    `silence_s`: how long the replicas then have to return to the minimum.
    """

    points: tuple[tuple[float, float], ...]
    max_tokens: int
    silence_s: float

    @property
    def seconds(self) -> float:
        """How long there is load."""
        return self.points[-1][0]

    @property
    def plateau(self) -> tuple[float, float]:
        """The longest time of constant load, from its begin to its end."""
        flat = [(begin, end) for (begin, low), (end, high) in pairwise(self.points) if low == high]
        return max(flat, key=lambda span: span[1] - span[0], default=(0.0, 0.0))

    def streams(self, second: float) -> int:
        """How many there should be."""
        for (begin, low), (end, high) in pairwise(self.points):
            if begin <= second < end:
                return round(low + (high - low) * (second - begin) / (end - begin))
        return 0


def ramp(most: int, rise_s: float, hold_s: float, silence_s: float, max_tokens: int) -> Ramp:
    """One stream, then up to `most`, which stay, then down to none."""
    calm = rise_s / 2
    times = (0.0, calm, calm + rise_s, calm + rise_s + hold_s, calm + 2 * rise_s + hold_s)
    return Ramp(tuple(zip(times, (1.0, 1.0, float(most), float(most), 0.0), strict=True)), max_tokens, silence_s)


FULL = ramp(32, rise_s=60, hold_s=180, silence_s=120, max_tokens=96)
QUICK = ramp(32, rise_s=20, hold_s=60, silence_s=60, max_tokens=48)


def ramp_settings(proposer: dict[str, Any], verifier: dict[str, Any], autoscaling: dict[str, Any]) -> Settings:
    """The application under test: one proposer, and verifiers as they are needed."""
    return parse_settings(
        {
            "port": 0,
            "proposer": {"engine": proposer, "resources": {"num_cpus": 0}},
            "verifier": {"engine": verifier, "resources": {"num_cpus": 0}, "autoscaling": autoscaling},
        },
        "ramp",
    )
