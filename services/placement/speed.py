"""Which replicas are slower than others. A long pass may just have many rows, so passes are compared at equal rows."""

from dataclasses import dataclass, field

from services.placement.load import Load

KEPT = 0.98  # weight of the past at each report, in the common line
FOLLOW = 0.3  # weight of the latest report in a replica's own figure
SLOWEST = 16.0


@dataclass(slots=True)
class _Line:
    """Seconds of a pass over its rows: a weighted least-squares line through what all replicas report."""

    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        self.weight, self.x, self.y = self.weight + 1, self.x + x, self.y + y
        self.xx, self.xy = self.xx + x * x, self.xy + x * y

    def fade(self) -> None:
        self.weight, self.x, self.y = self.weight * KEPT, self.x * KEPT, self.y * KEPT
        self.xx, self.xy = self.xx * KEPT, self.xy * KEPT

    def at(self, x: float) -> float:
        spread = self.weight * self.xx - self.x * self.x
        slope = (self.weight * self.xy - self.x * self.y) / spread if spread > 1e-9 * self.xx else 0.0
        if slope <= 0:
            return self.y / self.weight
        mean = self.y / self.weight
        return max(mean + slope * (x - self.x / self.weight), mean / 10)


@dataclass(slots=True)
class Speeds:
    """Learns from successive reports. `slowness` of a replica is 1 until it differs from the others."""

    _line: _Line = field(default_factory=_Line)
    _last: dict[str, Load] = field(default_factory=dict)
    _slowness: dict[str, float] = field(default_factory=dict)

    def learn(self, loads: dict[str, Load]) -> None:
        """Take in the latest report of every replica; those that are missing are forgotten."""
        points = {name: point for name, load in loads.items() if (point := self._since_last(load)) is not None}
        if points:
            self._line.fade()
        for rows, seconds in points.values():
            self._line.add(rows, seconds)
        kept = {name: value for name, value in self._slowness.items() if name in loads}
        for name, (rows, seconds) in points.items():
            ratio = min(max(seconds / self._line.at(rows), 1 / SLOWEST), SLOWEST)
            kept[name] = kept.get(name, 1.0) * (1 - FOLLOW) + FOLLOW * ratio
        self._slowness, self._last = kept, dict(loads)

    def slowness(self, replica: str) -> float:
        """How much longer its passes take than those of all replicas, at equal rows."""
        return self._slowness.get(replica, 1.0)

    def _since_last(self, load: Load) -> tuple[float, float] | None:
        before = self._last.get(load.replica)
        passes = load.passes - (before.passes if before else 0)
        if passes <= 0:
            return None
        rows = load.rows - (before.rows if before else 0)
        seconds = load.pass_seconds - (before.pass_seconds if before else 0.0)
        return (rows / passes, seconds / passes) if seconds > 0 else None
