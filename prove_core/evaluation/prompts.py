"""Prompts for benchmarks: JSONL, one object a line with `question` or `prompt` (text of a user message)."""

from itertools import islice
from pathlib import Path

from prove_core.errors import DataError
from prove_core.text.data import Chat, parse_prompt
from prove_core.text.jsonl import Record, parse_file


def read_prompts(path: Path, limit: int) -> list[str]:
    """The first `limit` prompts. Raises DataError naming file and line for anything that has none."""
    prompts = [text for _, text in islice(parse_file(path, _text), limit)]
    if not prompts:
        raise DataError(f"{path} has no prompts")
    return prompts


def _text(record: Record) -> str:
    prompt = parse_prompt(record)
    if not isinstance(prompt, Chat) or [message.role for message in prompt.messages] != ["user"]:
        raise ValueError("no text under `question` or `prompt`: benchmarks take single user messages")
    return prompt.messages[0].content
