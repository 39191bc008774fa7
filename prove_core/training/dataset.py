"""Training data: JSONL, one `{"prompt": [ids], "answer": [ids]}` a line; other keys are ignored."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prove_core.errors import DataError
from prove_core.types import TokenIds


@dataclass(frozen=True, slots=True)
class Example:
    """One prompt and the model's own greedy answer to it, as token ids (chat template applied, EOS included)."""

    prompt: TokenIds
    answer: TokenIds

    @property
    def tokens(self) -> TokenIds:
        """The whole clean sequence."""
        return self.prompt + self.answer


def read_examples(paths: Sequence[Path], *, vocabulary: int, shortest: int = 3) -> list[Example]:
    """Read every example of `paths` whose answer has at least `shortest` tokens (a block needs that many).

    Raises DataError naming file and line for anything that is not an example, and when nothing is left.
    """
    examples = [example for path in paths for example in _read_file(path, vocabulary)]
    kept = [example for example in examples if len(example.answer) >= shortest]
    if not kept:
        names = ", ".join(str(path) for path in paths)
        raise DataError(f"no example with an answer of {shortest} tokens or more in {names or 'no files'}")
    return kept


def _read_file(path: Path, vocabulary: int) -> Iterator[Example]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                yield _parse(line, vocabulary)
            except (ValueError, TypeError, RecursionError) as error:
                raise DataError(f"{path}, line {number}: {error}") from error


def _parse(line: str, vocabulary: int) -> Example:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise TypeError("expected an object with `prompt` and `answer`")
    return Example(_ids(record, "prompt", vocabulary), _ids(record, "answer", vocabulary))


def _ids(record: dict[str, Any], key: str, vocabulary: int) -> TokenIds:
    ids = record.get(key)
    if not isinstance(ids, list) or not ids:
        raise TypeError(f"`{key}` must be a non-empty list of token ids")
    for value in ids:
        if type(value) is not int or not 0 <= value < vocabulary:
            raise ValueError(f"`{key}` holds {value!r}, which is no token id below {vocabulary}")
    return tuple(ids)
