"""Human answers in a file of prompts: the `answer` of each line that has one."""

from itertools import islice
from pathlib import Path

from prove_core.evaluation.numbers import MARK, stated_result
from prove_core.text.jsonl import Record, parse_file


def read_references(path: Path, limit: int) -> list[tuple[int, str | None]]:
    """The line number of each of the first `limit` prompts, and the `answer` there; None where a line has no such key.

    Raises DataError naming file and line for an `answer` that is no text or is empty, and for one with a `####` that
    no number follows.
    """
    return list(islice(parse_file(path, _answer), limit))


def _answer(record: Record) -> str | None:
    if "answer" not in record:
        return None
    answer = record["answer"]
    if not isinstance(answer, str) or not answer.strip():
        raise ValueError("`answer` must be text to compare with")
    if MARK in answer and stated_result(answer) is None:
        raise ValueError(f"no number after {MARK} in `answer`")
    return answer
