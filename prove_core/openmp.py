"""How threads of the CPU's kernels wait for each other: to be set before torch is imported."""

import os

_SPINS = "5000"  # some 50 microseconds: longer than the gap between two products, shorter than anybody notices


def wait_briefly() -> None:
    """Let threads spin for a moment before they sleep, unless the environment says otherwise.

    A pass is hundreds of short products. Threads that sleep at the end of each take longer to wake than the product
    takes; threads that spin for long starve other engines on the same cores.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", _SPINS)
