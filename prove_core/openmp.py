"""How threads of the CPU's kernels wait for each other: to be set before torch is imported."""

import os

_SPINS = "5000"  # some 50 microseconds: longer than the gap between two products, shorter than anybody notices


def wait_briefly() -> None:
    """Let threads spin for a moment before they sleep, unless the environment says otherwise.

    A pass is hundreds of short products. Threads that sleep at the end of each take longer to wake than the product
    takes; threads that spin for long starve other engines on the same cores. The policy is `active` since a process
    with an engine thread has more threads than cores: GNU's library then lets passive ones sleep at once, whatever
    the count, and active ones after a fifth of it.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "active")
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
