"""The page's files, read once: served from memory, with tags that agree among all Routers."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import PurePosixPath

# Not from the system's table, which differs from machine to machine.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent."""

    content: bytes
    media_type: str
    etag: str


def read_assets() -> tuple[Asset, Mapping[str, Asset]]:
    """The page itself, and by name the files that it loads."""
    folder = files(__package__)
    return _read(folder / "index.html"), {file.name: _read(file) for file in (folder / "static").iterdir()}


def _read(file: Traversable) -> Asset:
    content = file.read_bytes()
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return Asset(content, TYPES[PurePosixPath(file.name).suffix], etag)
