"""What gates are fitted and judged on: candidates of real blocks, what a gate sees of them, whether they are right.

A file of records is JSONL, one block a line, its candidates d_2..d_B in order, one entry each in four lists of the same
length (a candidate's position in its block is its index plus 2; nothing after a stop token is listed):

    {"prompt": 3, "anchor": 57, "confidence": [0.98, 0.61], "probability": [0.95, 0.07],
     "agrees": [true, false], "right": [true, false]}

    prompt       index of the prompt that the trajectory answers
    anchor       tokens before the block, the prompt's included
    confidence   c_i, the proposer's probability of d_i
    probability  v_i, the verifier's probability of d_i after the block so far
    agrees       d_i is the verifier's argmax there
    right        d_i is the proposer's own argmax there: the AR token, given the block so far
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prove_core.decoding.acceptance import Evidence
from prove_core.errors import DataError
from prove_core.text.jsonl import Record, parse_file


@dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate: what a gate sees, and the label that it is judged by."""

    evidence: Evidence
    right: bool


@dataclass(frozen=True, slots=True)
class BlockRecord:
    """One block, proposed `anchor` tokens into the trajectory of `prompt`; `candidates` are d_2 onwards."""

    prompt: int
    anchor: int
    candidates: tuple[Candidate, ...]


def write_records(path: Path, records: Sequence[BlockRecord]) -> None:
    """Write one line per block. Raises DataError when the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(_plain(record)) + "\n" for record in records), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error


def read_records(path: Path) -> list[BlockRecord]:
    """The blocks of a file, at least one. Raises DataError naming file and line."""
    records = [record for _, record in parse_file(path, _parse)]
    if not records:
        raise DataError(f"{path} has no blocks")
    return records


def _plain(record: BlockRecord) -> dict[str, Any]:
    seen = [candidate.evidence for candidate in record.candidates]
    return {
        "prompt": record.prompt,
        "anchor": record.anchor,
        "confidence": [each.confidence for each in seen],
        "probability": [each.probability for each in seen],
        "agrees": [each.agrees for each in seen],
        "right": [candidate.right for candidate in record.candidates],
    }


def _parse(record: Record) -> BlockRecord:
    columns = [
        _list(record, "confidence", _is_probability, "probabilities"),
        _list(record, "probability", _is_probability, "probabilities"),
        _list(record, "agrees", _is_bool, "true or false"),
        _list(record, "right", _is_bool, "true or false"),
    ]
    if len({len(column) for column in columns}) > 1:
        raise ValueError("`confidence`, `probability`, `agrees` and `right` must be of the same length")
    rows = zip(*columns, strict=True)
    candidates = tuple(Candidate(Evidence(float(c), float(v), agrees), right) for c, v, agrees, right in rows)
    return BlockRecord(_index(record, "prompt"), _index(record, "anchor"), candidates)


def _index(record: Record, key: str) -> int:
    value = record.get(key)
    if type(value) is not int or value < 0:
        raise ValueError(f"`{key}` must be an integer, 0 or more")
    return value


def _list(record: Record, key: str, fits: Callable[[object], bool], kind: str) -> list[Any]:
    values = record.get(key)
    if not isinstance(values, list) or not all(map(fits, values)):
        raise ValueError(f"`{key}` must be a list of {kind}")
    return values


def _is_probability(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)
