"""Self-distillation: a model's own greedy answers to prompts, decoded by the engine and appended to a JSONL file."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from prove_core.engine.engine import Engine
from prove_core.engine.many import complete_many
from prove_core.errors import DataError
from prove_core.types import DecodingParams, FinishReason, GenerateRequest, Limits, Mode, Step, TokenIds

Tick = Callable[[int], None]


def greedy_answers(
    engine: Engine, prompts: Sequence[TokenIds], max_tokens: int, eos_ids: TokenIds, *, concurrency: int = 32
) -> Iterator[tuple[int, TokenIds]]:
    """Pairs of a prompt's index and its greedy answer, as they finish; `concurrency` prompts are in flight.

    An answer that ended by itself has `eos_ids[0]` last: engines do not show which stop it was, and chats have one
    (`text.data.ends_first` puts it in front). Raises what the engine answers, for example RequestError when a prompt
    does not fit its context.
    """
    limits = Limits(max_tokens, frozenset(eos_ids))
    params = DecodingParams(Mode.AR)
    requests = [GenerateRequest(f"answer-{i}", prompt, params, limits) for i, prompt in enumerate(prompts)]
    answers: list[list[int]] = [[] for _ in prompts]
    for index, event in complete_many(engine, requests, concurrency):
        if isinstance(event, Step):
            answers[index] += event.tokens
        else:
            end = eos_ids[:1] if event.reason is FinishReason.STOP else ()
            yield index, (*answers[index], *end)


def distill(
    engine: Engine,
    prompts: Sequence[TokenIds],
    max_tokens: int,
    eos_ids: TokenIds,
    path: Path,
    tick: Tick = lambda _: None,
    *,
    concurrency: int = 64,
    by: str | None = None,
) -> int:
    """Append the answers to those prompts that `path` does not answer yet, one line each, and say how many.

    A killed run is taken up by calling this again, see `unanswered`. `tick` gets the length of each answer written.
    `by` says in each line who answered.
    """
    missing = unanswered(prompts, path, by)
    note = {} if by is None else {"by": by}
    with _appending(path) as file:
        for index, answer in greedy_answers(engine, missing, max_tokens, eos_ids, concurrency=concurrency):
            file.write(json.dumps({"prompt": missing[index], "answer": answer, **note}) + "\n")
            file.flush()
            tick(len(answer))
    return len(missing)


def _appending(path: Path) -> TextIO:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a", encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error


def unanswered(prompts: Sequence[TokenIds], path: Path, by: str | None = None) -> list[TokenIds]:
    """The distinct ones of `prompts` that `path` does not answer, after dropping a last line left half written.

    Raises DataError when `path` is no file of answers, or names another `by`: those answers should not mix.
    """
    known = _answered(path, by)
    return [prompt for prompt in dict.fromkeys(prompts) if prompt not in known]


def pool_tokens(prompts: Sequence[TokenIds], max_tokens: int, concurrency: int, page_size: int) -> int:
    """KV tokens that `concurrency` completions need at most at a time: those of the longest prompts, in whole pages."""
    longest = sorted((len(prompt) for prompt in prompts), reverse=True)[:concurrency]
    return sum(-(-(length + max_tokens) // page_size) * page_size for length in longest)


def _answered(path: Path, by: str | None) -> set[TokenIds]:
    if not path.exists():
        return set()
    try:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        records = [json.loads(line) for line in whole.splitlines() if line.strip()]
        prompts = {_ids(record["prompt"]) for record in records if _ids(record["answer"])}
        authors = {record.get("by") for record in records} - {None, by}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is no file of answers to add to: {error!r}") from error
    if by is not None and authors:
        raise DataError(f"{path} holds answers by {authors.pop()}, not by {by}: name another file")
    if len(whole) < len(data):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return prompts


def _ids(value: object) -> TokenIds:
    if not isinstance(value, list):
        raise TypeError("its prompts and answers are not lists of token ids")
    return tuple(value)
