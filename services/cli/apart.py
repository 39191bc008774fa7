"""Running a command in a session of its own, where signals to this process's group do not reach it.

Ray starts its processes in the caller's process group. Ctrl-C, `timeout` and supervisors signal the whole group, which
would kill Ray under a server that is still using it. Here only this process is signalled, and it asks the command to
stop by closing the command's stdin, which also happens when this process is killed.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 128 + signal.SIGINT  # the command's own exit code when it was stopped before it was ready
SAME_SIGNAL_S = 1.0  # `timeout` signals its child and then its group: that is one wish, not two


class _Stopper:
    """Turns signals into a closed stdin of the command, and a repeated one into its death."""

    def __init__(self) -> None:
        self.number = 0
        self._asked = 0.0
        self._command: subprocess.Popen[bytes] | None = None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if not self.number:
            self.number, self._asked = number, time.monotonic()
            self._ask()
        elif self._command is not None and time.monotonic() - self._asked > SAME_SIGNAL_S:
            self._command.kill()

    def watch(self, command: subprocess.Popen[bytes]) -> None:
        """From now on signals reach `command`; so does one that came before."""
        self._command = command
        if self.number:
            self._ask()

    def _ask(self) -> None:
        if self._command is not None and self._command.stdin is not None:
            self._command.stdin.close()


def run_apart(command: Sequence[str]) -> int:
    """Run `command` until it ends; SIGINT, SIGTERM and SIGHUP stop it, a second one kills it with its process group.

    Returns its exit code, or 128 + the signal's number when that stopped it before it was ready (`INTERRUPTED`) or
    killed it.
    """
    stopper = _Stopper()
    with (
        _handling(stopper),
        subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as running,
    ):
        stopper.watch(running)
        code = running.wait()
    with suppress(ProcessLookupError, PermissionError):  # the usual case: nothing is left
        os.killpg(running.pid, signal.SIGKILL)  # agents of a Ray whose start was interrupted
    if stopper.number and (code < 0 or code == INTERRUPTED):
        return 128 + stopper.number
    return 128 - code if code < 0 else code


@contextmanager
def _handling(stopper: _Stopper) -> Iterator[None]:
    previous = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        if number != signal.SIGHUP or previous[number] != signal.SIG_IGN:  # nohup
            signal.signal(number, stopper.receive)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
