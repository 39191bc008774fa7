"""The compiled code: built by the machine's own compiler at first use, for its own CPU, and kept."""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from ctypes import POINTER, c_int32, c_int64, c_void_p
from functools import lru_cache
from pathlib import Path

from prove_core.model import alternatives, recall
from prove_core.model.native.interface import Block, Head, Model, Others, Task

logger = logging.getLogger(__name__)

_SOURCES = Path(__file__).parent / "kernels"
_FLAGS = ("-O3", "-march=native", "-std=gnu++17", "-fopenmp", "-fPIC", "-shared", "-fno-math-errno", "-w")
_NUMBERS = {  # that Python and the compiled code must agree on
    "RANKS": alternatives.RANKS,
    "MOST": alternatives.MOST,
    "LEAST": alternatives.LEAST,
    "LONGEST": recall.LONGEST,
}
_SECONDS = 300.0


class NoLibrary(Exception):
    """There is no compiled code on this machine, for the reason given."""


class Library:
    """The functions of a loaded library."""

    def __init__(self, path: Path) -> None:
        code = ctypes.CDLL(str(path))
        self.new_workspace = code.prove_workspace
        self.new_workspace.argtypes, self.new_workspace.restype = (), c_void_p
        self.release_workspace = code.prove_release
        self.release_workspace.argtypes, self.release_workspace.restype = (c_void_p,), None
        self.chunk: int = code.prove_chunk()
        self.run = code.prove_pass
        self.run.argtypes, self.run.restype = (POINTER(Model), POINTER(Task), c_void_p), c_int64
        self.read = code.prove_read
        self.read.argtypes = (
            *(c_void_p, c_int32, c_int64, c_int32),
            *(c_int32, c_void_p, c_void_p, c_void_p, c_void_p),
            *(c_int32, c_void_p, c_void_p, c_void_p),
        )
        self.read.restype = None
        self.embed = code.prove_embed
        self.embed.argtypes = (c_void_p, c_void_p, c_int32, c_int32, c_int64, c_int32, c_void_p)
        self.embed.restype = None
        self.kept_size = code.prove_kept_size
        self.kept_size.argtypes, self.kept_size.restype = (c_int32,), c_int64
        self.walk = code.prove_walk
        blocks, numbers = (POINTER(Head), POINTER(Block), c_int32), (c_void_p, c_void_p, c_int32, c_void_p, c_void_p)
        self.walk.argtypes = (*blocks, *numbers, POINTER(Others))
        self.walk.restype = None


@lru_cache
def library(home: Path, *, portable: bool = False) -> Library:
    """The library, compiled first where this machine has not done so yet (some seconds). Raises NoLibrary.

    `portable`: without instructions for products of bf16 pairs, as on CPUs that lack them.
    """
    compiler = _compiler()
    flags = (*_FLAGS, *(f"-DPROVE_{name}={value}" for name, value in _NUMBERS.items()))
    flags = (*flags, "-DPROVE_PORTABLE") if portable else flags
    target = home / "native" / f"{_identity(compiler, flags)}.so"
    if not target.exists():
        _compile(compiler, flags, target)
    try:
        return Library(target)
    except (OSError, AttributeError) as error:
        raise NoLibrary(f"{target} cannot be loaded ({error})") from error


def _compiler() -> str:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        raise NoLibrary("the CPU kernels are for Linux on x86-64")
    names = (os.environ.get("CXX", ""), "g++", "clang++", "c++")
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        raise NoLibrary("there is no C++ compiler (g++ or clang++)")
    return found


def _identity(compiler: str, flags: tuple[str, ...]) -> str:
    """Whatever changes the compiled code: the sources, how and by what they are compiled, the CPU."""
    parts = [compiler, *flags, _output(compiler, "--version"), _cpu()]
    parts += [path.read_text() for path in sorted(_SOURCES.iterdir())]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _cpu() -> str:
    """The CPU's model and abilities, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise NoLibrary(f"{Path(command[0]).name} fails: {said[0] if said else error}") from error


def _compile(compiler: str, flags: tuple[str, ...], target: Path) -> None:
    """Into a file beside the target that then takes its name, so that nobody finds half a library."""
    logger.info("compiling the CPU kernels, once: some seconds")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as work:
            built = Path(work) / target.name
            _output(compiler, *flags, str(_SOURCES / "pass.cpp"), "-o", str(built))
            built.replace(target)
    except OSError as error:
        raise NoLibrary(f"{target.parent} cannot be written ({error})") from error
