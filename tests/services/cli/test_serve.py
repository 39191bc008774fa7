"""`prove serve` as a process: taken ports, and signals while it starts."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from services.cli.apart import INTERRUPTED

PROVE = [sys.executable, "-m", "services.cli.main", "serve"]
CONVERTED = """
import sys, time, typer
from services.cli import server
def importing(settings, stop):
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        raise ValueError("could not import module")
server._serve = importing
try:
    server.run("{}")
except typer.Exit as exit:
    sys.exit(exit.exit_code)
"""
TAKEN = (
    "import sys; from services.cli.main import app; code = app(sys.argv[1:], standalone_mode=False);"
    "assert not {'ray', 'torch', 'transformers'} & sys.modules.keys(); sys.exit(code)"
)


def _start(options: Sequence[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen([*PROVE, *options], stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_a_taken_port_is_reported_before_anything_heavy_is_imported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-c", TAKEN, "serve", "--port", port]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: cannot listen on 127.0.0.1:{port}: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("delay", [0.5, 1.5])
def test_a_signal_during_the_imports(number: signal.Signals, delay: float) -> None:
    process = _start(["--port", "0"])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None and not children.read_text():
        time.sleep(0.01)
    time.sleep(delay)
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err


def test_an_interrupt_that_an_import_turned_into_another_error_is_none() -> None:
    command = [sys.executable, "-c", CONVERTED]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (INTERRUPTED, "stopping ...\n")


@pytest.mark.cluster
@pytest.mark.model
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("stage", "delay", "number"),
    [
        ("starting Ray", 2.5, signal.SIGTERM),
        ("starting Ray", 0.5, signal.SIGINT),
        ("loading models", 3, signal.SIGTERM),
    ],
)
def test_a_signal_to_the_group_while_ray_starts(stage: str, delay: float, number: signal.Signals) -> None:
    process = _start(["--port", "0"])
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(stage):
            break
    threading.Timer(delay, os.killpg, (process.pid, number)).start()
    err = process.stderr.read()
    assert process.wait(60) == 128 + number
    assert "stopping ..." in err
    assert not {"Traceback", "***", "SIGABRT"} & set(err.split())
