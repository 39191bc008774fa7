"""How the threads of a replica share Python's interpreter."""

import sys

SWITCH_INTERVAL_S = 2e-4


def switch_often() -> None:
    """Let the event loop have the interpreter soon after a frame came in: by default another thread yields after 5 ms.

    That may be the engine's, one that renders a prompt, or one that renders metrics.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
