"""What a replica tells Serve's autoscaler about itself."""

from prove_core.engine.stats import EngineStats


class Meter:
    """Turns an engine's counters into rates, from one reading to the next."""

    def __init__(self, now: float) -> None:
        self._at = now
        self._busy_seconds = 0.0

    def read(self, stats: EngineStats, reserved: float, now: float) -> dict[str, float]:
        """`busy` and `kv` in 0..1, `wait_s` the p90 of recent calls, `sessions` open. `now`: monotonic seconds.

        `reserved`: share of the KV pool that leases expect to need. Routers let nobody in beyond that, so `kv` is that
        share where it is more than what is used.
        """
        elapsed = max(now - self._at, 1e-6)
        busy = (stats.busy_seconds - self._busy_seconds) / elapsed
        self._at, self._busy_seconds = now, stats.busy_seconds
        return {
            "busy": min(max(busy, 0.0), 1.0),
            "wait_s": stats.queue_wait_p90,
            "kv": min(1.0, max(reserved, 1 - stats.free_pages / max(stats.total_pages, 1))),
            "sessions": float(stats.sessions),
        }
