"""The prompts of a distillation: read, rendered, and checked against the model's context."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from prove_core.errors import DataError
from prove_core.text.data import DataTokenizer, check_ids, parse_prompt
from prove_core.text.jsonl import Record, parse_file
from prove_core.types import TokenIds

NAMED_LINES = 10  # of those that are too long


@dataclass(frozen=True, slots=True)
class NumberedPrompt:
    """A prompt's ids, and its line in the file."""

    line: int
    ids: TokenIds


def read_prompt_ids(path: Path, text: DataTokenizer, vocabulary: int, limit: int | None = None) -> list[NumberedPrompt]:
    """The first `limit` prompts of `path`. Raises DataError naming file and line, and when there is none."""

    def parse(record: Record) -> TokenIds:
        return check_ids(text.prompt(parse_prompt(record)), "prompt", vocabulary)

    prompts = [NumberedPrompt(line, ids) for line, ids in islice(parse_file(path, parse), limit)]
    if not prompts:
        raise DataError(f"{path} has no prompts")
    return prompts


def too_long(prompts: Sequence[NumberedPrompt], longest: int) -> str | None:
    """The lines of prompts with more than `longest` tokens, in words; None when all fit."""
    lines = [prompt.line for prompt in prompts if len(prompt.ids) > longest]
    if not lines:
        return None
    more = f" and {len(lines) - NAMED_LINES} more" if len(lines) > NAMED_LINES else ""
    named = ", ".join(map(str, lines[:NAMED_LINES]))
    return f"line{'s' if len(lines) > 1 else ''} {named}{more}: more than {longest} prompt tokens"
