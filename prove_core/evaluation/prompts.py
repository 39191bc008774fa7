"""Prompts for benchmarks: JSONL, one object a line with `question` or `prompt` (text of a user message)."""

import json
from pathlib import Path

from prove_core.errors import DataError


def read_prompts(path: Path, limit: int) -> list[str]:
    """The first `limit` prompts. Raises DataError naming file and line for anything that has none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    prompts = [_prompt(line, path, number) for number, line in enumerate(lines, start=1) if line.strip()]
    if not prompts:
        raise DataError(f"{path} has no prompts")
    return prompts[:limit]


def _prompt(line: str, path: Path, number: int) -> str:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise DataError(f"{path}, line {number}: not JSON: {error}") from error
    for key in ("question", "prompt"):
        if isinstance(record, dict) and isinstance(record.get(key), str):
            return str(record[key])
    raise DataError(f"{path}, line {number}: no text under `question` or `prompt`")
