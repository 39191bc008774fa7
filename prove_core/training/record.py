"""What is fitted to a trained adapter goes into its record."""

import json
from dataclasses import asdict

from prove_core.errors import DataError
from prove_core.model.adapters import RECORD, AdapterFolder, AdapterRecord
from prove_core.model.recall import Recall
from prove_core.types import Calibration


def check_record(folder: AdapterFolder) -> AdapterRecord:
    """The folder's record. Raises DataError where there is none: nothing can be fitted then."""
    if folder.record is None:
        raise DataError(f"adapter {folder.path} has no {RECORD}: only adapters of `prove train` are fitted")
    return folder.record


def amend_record(folder: AdapterFolder, **fits: Calibration | Recall) -> None:
    """Write fits under their names, and leave the rest of the record as it is. Raises DataError."""
    path = folder.path / RECORD
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        record |= {name: asdict(fit) for name, fit in fits.items()}
        path.write_text(json.dumps(record, indent=2), encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}") from error
