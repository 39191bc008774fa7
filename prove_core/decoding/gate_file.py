"""The file of a fitted gate, `gate.json`: an object with the `weights` of `GateWeights`; the rest is about the fit.

{"weights": {"bias": 1.2, "log_confidence": 0.8, "log_probability": 0.5, "agrees": 2.1}, "auc": {...}, ...}
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from prove_core.errors import DataError
from prove_core.types import GateWeights

NAMES = tuple(field.name for field in fields(GateWeights))
FILE = "gate.json"  # its name beside the adapter of the verifier that it was fitted for


def weights_from(data: object) -> GateWeights:
    """Weights from plain data. Raises ValueError in one line unless it has exactly their names, all finite numbers."""
    if not isinstance(data, dict) or data.keys() != set(NAMES):
        raise ValueError(f"gate weights must be a mapping with exactly the keys {', '.join(NAMES)}")
    return GateWeights(**{name: _number(name, value) for name, value in data.items()})


def _number(name: str, value: object) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"gate weight {name} must be a finite number, got {value!r:.40}")
    return number


def read_gate(path: Path) -> GateWeights:
    """The weights in a gate file. Raises DataError naming the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise DataError(f"{path}: cannot be read: {reason}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from error
    if not isinstance(data, dict) or "weights" not in data:
        raise DataError(f"{path}: no gate file: it must be a JSON object with `weights`")
    try:
        return weights_from(data["weights"])
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error


def write_gate(path: Path, weights: GateWeights, about: Mapping[str, Any]) -> None:
    """Write a gate file: the weights, and what is known `about` their fit. Raises DataError if it can't be written."""
    text = json.dumps({"weights": asdict(weights), **about}, indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error
