"""Folders made once and kept under `PROVE_HOME`: complete and unaltered, or made again."""

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from prove_core.config import Frozen
from prove_core.errors import CheckpointError
from prove_core.model.progress import Progress

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"


class CachedFile(Frozen):
    """A file as it was when the folder was made: size in bytes, modification time in ns, sha256 in hex."""

    size: int
    mtime_ns: int
    sha256: str


class Manifest(Frozen):
    """All files of a cached folder, by name."""

    files: dict[str, CachedFile]


def home() -> Path:
    """The cache folder: `PROVE_HOME`, else `~/.cache/prove`."""
    return Path(os.environ.get("PROVE_HOME") or "~/.cache/prove").expanduser()


def ensure_folder(target: Path, build: Callable[[Path], None], progress: Progress) -> Path:
    """Return `target`, calling `build(empty folder)` first if it is missing or damaged.

    Safe against several processes starting together (one builds, the rest wait) and against being killed half-way
    (the folder appears under its name only when whole).
    """
    if fault(target) is None:
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.with_name(target.name + ".lock"), progress):
            found = fault(target)
            if found is not None:
                if target.exists():
                    log.warning("cached checkpoint %s is damaged (%s): making it again", target, found)
                _replace(target, build)
    except OSError as error:
        raise CheckpointError(
            f"cannot write the checkpoint cache {target.parent}: {error}; set PROVE_HOME to another folder"
        ) from error
    return target


def fault(folder: Path) -> str | None:
    """What is wrong with a cached folder, or None. A file is hashed only when its modification time has changed."""
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except (OSError, ValidationError):
        return "no valid manifest"
    for name, expected in manifest.files.items():
        try:
            found = (folder / name).stat()
        except OSError:
            return f"{name} is missing"
        if found.st_size != expected.size:
            return f"{name} has {found.st_size} bytes instead of {expected.size}"
        if found.st_mtime_ns != expected.mtime_ns and sha256(folder / name) != expected.sha256:
            return f"{name} has been altered"
    return None


def sha256(path: Path) -> str:
    """The file's sha256 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    """Hold the lock, saying so if another process has it. The system drops it when its holder dies."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0.05)
    except Timeout:
        progress.stage("waiting for another process to prepare the checkpoint")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _replace(target: Path, build: Callable[[Path], None]) -> None:
    for leftover in target.parent.glob(f"{target.name}.tmp-*"):  # the lock is ours: their makers are dead
        shutil.rmtree(leftover, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"{target.name}.tmp-", dir=target.parent))
    try:
        build(work)
        _write_manifest(work)
        if target.exists():
            shutil.rmtree(target)  # processes that have it mapped keep their pages
        work.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _write_manifest(folder: Path) -> None:
    files = {}
    for path in sorted(folder.iterdir()):
        _sync(path)
        stat = path.stat()
        files[path.name] = CachedFile(size=stat.st_size, mtime_ns=stat.st_mtime_ns, sha256=sha256(path))
    (folder / MANIFEST).write_text(json.dumps(Manifest(files=files).model_dump(), indent=1))


def _sync(path: Path) -> None:
    """Data on disk before the rename, so that a power cut cannot leave a named folder with empty files."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
