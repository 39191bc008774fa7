"""The keys that open the API. Only their digests are kept, and every comparison takes as long as any other."""

import hashlib
import hmac
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from services.config.yaml_config import SettingsError
from services.security.settings import SecuritySettings

logger = logging.getLogger(__name__)

SHORTEST = 16  # characters of a key that cannot be guessed

Digests = tuple[bytes, ...]


class Keys:
    """Accepts a key that is in the file or was given. The file is read again when it has changed."""

    def __init__(self, given: Digests, file: "KeyFile | None") -> None:
        self._given = given
        self._file = file

    @classmethod
    def load(cls, settings: SecuritySettings, environment: Mapping[str, str] = os.environ) -> Self | None:
        """The keys of `settings`; None where the API is open. Raises `SettingsError` where no key is to be found."""
        if not settings.guarded:
            return None
        file = None if settings.api_keys_file is None else KeyFile(Path(settings.api_keys_file))
        given: Digests = ()
        if (name := settings.api_keys_env) is not None:
            given = _digests(environment.get(name, "").split(","), f"security.api_keys_env: variable {name}")
        return cls(given, file)

    def accept(self, key: bytes) -> bool:
        """Whether `key` is one of them."""
        digest = hashlib.sha256(key).digest()
        known = (*self._given, *(self._file.digests() if self._file else ()))
        return sum(hmac.compare_digest(digest, other) for other in known) > 0  # a sum: all are compared


class KeyFile:
    """A file with a key a line; empty lines and those that begin with `#` do not count."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._stamp()
        self._digests = self._read()

    def digests(self) -> Digests:
        """Of the file as it is now. One that has become unreadable or empty leaves the keys as they were."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._digests = self._read()
            except SettingsError as error:
                logger.error("API keys stay as they were: %s", error)
        return self._digests

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size

    def _read(self) -> Digests:
        place = f"security.api_keys_file: {self._path}"
        try:
            lines = self._path.read_text(encoding="ascii").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not ASCII text"
            raise SettingsError(f"{place} cannot be read: {reason}") from None  # its text may hold a key
        return _digests((line for line in lines if not line.lstrip().startswith("#")), place)


def _digests(keys: Iterable[str], place: str) -> Digests:
    found = [key.strip() for key in keys if key.strip()]
    if not found:
        raise SettingsError(f"{place} holds no key")
    for number, key in enumerate(found, 1):
        if len(key) < SHORTEST or not (key.isascii() and key.isprintable()) or " " in key:
            raise SettingsError(f"{place}: key {number} must have {SHORTEST} or more characters, none of them a space")
    return tuple(hashlib.sha256(key.encode()).digest() for key in found)
