"""Cached folders: whole or absent, whatever is killed, damaged or started twice."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prove_core.errors import CheckpointError
from prove_core.model.cache import MANIFEST, ensure_folder, fault
from prove_core.model.progress import SILENT

BUILDER = """
import os, sys, time
from pathlib import Path
from prove_core.model.cache import ensure_folder
from prove_core.model.progress import SILENT

def build(folder):
    (folder / "a").write_bytes(b"half")
    print("building", flush=True)
    {action}
    (folder / "a").write_bytes(b"whole")
    (folder / "b").write_bytes(bytes(1000))

ensure_folder(Path(sys.argv[1]), build, SILENT)
"""


def build(folder: Path) -> None:
    (folder / "a").write_bytes(b"whole")
    (folder / "b").write_bytes(bytes(1000))


def never(folder: Path) -> None:
    pytest.fail("a good folder was built again")


def start(target: Path, action: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", BUILDER.format(action=action), str(target)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_built_once(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "model"
    assert ensure_folder(target, build, SILENT) == target
    assert (target / "a").read_bytes() == b"whole"
    ensure_folder(target, never, SILENT)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "b").write_bytes(bytes(999)),
        lambda folder: (folder / "b").write_bytes(b"1" + bytes(999)),
        lambda folder: (folder / "a").unlink(),
        lambda folder: (folder / MANIFEST).write_text("{}"),
        lambda folder: (folder / MANIFEST).unlink(),
    ],
)
def test_damage_is_seen_and_repaired(tmp_path: Path, damage: object) -> None:
    target = ensure_folder(tmp_path / "model", build, SILENT)
    time.sleep(0.01)  # the clock of file times is coarse
    damage(target)  # type: ignore[operator]
    assert fault(target) is not None
    ensure_folder(target, build, SILENT)
    assert fault(target) is None
    assert (target / "b").read_bytes() == bytes(1000)


def test_a_copy_with_other_times_is_as_good(tmp_path: Path) -> None:
    target = ensure_folder(tmp_path / "model", build, SILENT)
    os.utime(target / "b", (1, 1))
    ensure_folder(target, never, SILENT)


def test_killed_while_building(tmp_path: Path) -> None:
    target = tmp_path / "model"
    process = start(target, "os.kill(os.getpid(), 9)")
    assert process.wait(60) != 0
    assert not target.exists()
    assert len(list(tmp_path.glob("model.tmp-*"))) == 1
    ensure_folder(target, build, SILENT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "model.lock"]


def test_failure_while_building_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "a").write_bytes(b"half")
        raise CheckpointError("no")

    with pytest.raises(CheckpointError, match="no"):
        ensure_folder(tmp_path / "model", fail, SILENT)
    assert [path.name for path in tmp_path.iterdir()] == ["model.lock"]


def test_two_processes_build_once(tmp_path: Path) -> None:
    processes = [start(tmp_path / "model", "time.sleep(1)") for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert "".join(outputs).count("building") == 1
    assert fault(tmp_path / "model") is None


def test_a_waiting_process_says_so(tmp_path: Path) -> None:
    stages: list[str] = []

    class Recorder:
        def stage(self, name: str, total: int | None = None) -> None:
            stages.append(name)

        def advance(self, amount: int) -> None:
            pass

    process = start(tmp_path / "model", "time.sleep(1)")
    assert process.stdout is not None
    process.stdout.readline()
    ensure_folder(tmp_path / "model", never, Recorder())
    assert process.wait(60) == 0
    assert len(stages) == 1
    assert "waiting" in stages[0]


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="PROVE_HOME"):
        ensure_folder(tmp_path / "file" / "model", build, SILENT)
