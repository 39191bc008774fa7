"""Logs of every process of the application: one line a record, as text or JSON, with the ids that it concerns.

Prompts, outputs and keys are never logged.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import IO, Any

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

from services.telemetry.origin import CURRENT_ID, request_of
from services.telemetry.settings import LoggingSettings

OURS = ("prove_core", "services")  # the loggers below which all of ours are


def configure(settings: LoggingSettings, stream: IO[str] | None = None, **constant: str) -> None:
    """Log this process's records to `stream` (default: standard error), each with the fields `constant`."""
    handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.addFilter(_with_request)
    handler.setFormatter(_json(constant) if settings.format == "json" else _Text(constant))
    for name in OURS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(settings.level)


def _with_request(record: logging.LogRecord) -> bool:
    """Adds the id of the request that a record is about: of its session, or of the task that wrote it."""
    session = getattr(record, "session", None)
    id = CURRENT_ID.get() if session is None else request_of(session)
    if id is not None:
        record.request_id = id
    return True


def _json(constant: dict[str, str]) -> logging.Formatter:
    names = {"asctime": "time", "levelname": "level", "name": "logger", "exc_info": "exception"}
    formatter = _Json("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=names, static_fields=constant)
    return formatter


class _Json(JsonFormatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        return _time(record)


class _Text(logging.Formatter):
    """`time level logger message`, then the record's fields as `name=value`."""

    def __init__(self, constant: dict[str, str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._constant = constant

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        return _time(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        fields: dict[str, Any] = {k: v for k, v in vars(record).items() if k not in RESERVED_ATTRS}
        pairs = "".join(f" {name}={value}" for name, value in {**self._constant, **fields}.items())
        return super().formatMessage(record) + pairs


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
