"""Data files: JSON Lines, one object a line. What cannot be used is named by file and line."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from prove_core.errors import DataError, RequestError

T = TypeVar("T")
Record = dict[str, Any]


def parse_file(path: Path, parse: Callable[[Record], T]) -> Iterator[tuple[int, T]]:
    """The number (from 1) of each line that is not blank, and what `parse` makes of its object.

    Raises DataError for a file that cannot be read, and with the line's number for one that holds no JSON object or
    that `parse` refuses with ValueError or RequestError.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):  # bytes: a U+2028 inside a string ends no line
                if line.strip():
                    yield number, _parse_line(line, parse, f"{path}, line {number}")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _parse_line(line: bytes, parse: Callable[[Record], T], place: str) -> T:
    try:
        record = json.loads(line.decode("utf-8-sig"))
        if not isinstance(record, dict):
            raise ValueError("expected a JSON object")
        return parse(record)
    except json.JSONDecodeError as error:
        raise DataError(f"{place}: not JSON: {error.msg} at column {error.colno}") from error
    except (ValueError, RecursionError, RequestError) as error:
        raise DataError(f"{place}: {error}") from error
