"""Whether the engine thread gets on with its work, for whoever watches it from other threads."""

import time


class Beat:
    """When the thread last began something. Written by that thread, read by any."""

    def __init__(self) -> None:
        self._since: float | None = None
        self.failures = 0  # of passes, since one succeeded

    def began(self) -> None:
        """A step begins: taking in work, or a pass."""
        self._since = time.monotonic()

    def idle(self) -> None:
        """There is nothing to do."""
        self._since = None

    @property
    def age_s(self) -> float:
        """Seconds that the present step has lasted; 0 while idle."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since
