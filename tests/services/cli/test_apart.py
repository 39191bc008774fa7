"""Signals to `prove serve` and to its whole process group, with small commands in place of the server."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

RUN = "import sys; from services.cli.apart import run_apart; sys.exit(run_apart([sys.executable, '-c', sys.argv[1]]))"
READY = "import os, sys, time; print('ready', os.getpid(), flush=True);"
UNTIL_CLOSED = READY + "os.read(0, 1); print('closed', flush=True);"
DEAF = READY + "time.sleep(60)"


@contextlib.contextmanager
def apart(command: str) -> Iterator[tuple["subprocess.Popen[str]", int]]:
    """A process group in which `run_apart` runs `command`, which is ready; and the command's process id."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline().split()[1])
    try:
        yield process, pid
    finally:
        for group in (process.pid, pid):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        process.wait()


def _gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(pid, 0)
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] != "Z":
                    time.sleep(0.05)
                    continue
        return True
    return False


@pytest.mark.parametrize(("own", "seen"), [(0, 0), (130, None), (3, 3)])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_group_stops_the_command_in_its_own_way(number: signal.Signals, own: int, seen: int) -> None:
    with apart(UNTIL_CLOSED + f"sys.exit({own})") as (process, _):
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=20)
        assert out == "closed\n"
        assert err == ""
        assert process.returncode == (128 + number if seen is None else seen)


def test_without_a_signal_the_exit_code_is_the_commands() -> None:
    with apart(READY + "sys.exit(7)") as (process, _):
        assert process.wait(20) == 7


def test_a_second_signal_kills() -> None:
    with apart(DEAF) as (process, pid):
        process.send_signal(signal.SIGTERM)
        time.sleep(1.2)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=20)
        assert process.returncode == 128 + signal.SIGTERM
        assert err == ""
        assert _gone(pid)


def test_two_signals_at_once_are_one() -> None:
    with apart(UNTIL_CLOSED + "time.sleep(0.5); print('in peace')") as (process, _):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=20)
        assert out == "closed\nin peace\n"
        assert process.returncode == 0


def test_children_of_the_command_end_with_it() -> None:
    child = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True);"
    with apart(READY + child) as (process, _):
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert process.wait(20) == 0
        assert _gone(pid)


def test_the_command_learns_of_a_killed_parent() -> None:
    with apart(UNTIL_CLOSED) as (process, pid):
        process.kill()
        assert _gone(pid)
