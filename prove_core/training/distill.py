"""Self-distillation: a model's own greedy answers to prompts, decoded by the engine and appended to a JSONL file."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prove_core.engine.engine import Engine
from prove_core.engine.many import complete_many
from prove_core.errors import DataError
from prove_core.types import DecodingParams, FinishReason, GenerateRequest, Limits, Mode, Step, TokenIds

Tick = Callable[[], None]


def greedy_answers(
    engine: Engine, prompts: Sequence[TokenIds], max_tokens: int, eos_ids: TokenIds, *, concurrency: int = 32
) -> Iterator[tuple[int, TokenIds]]:
    """Pairs of a prompt's index and its greedy answer, as they finish; `concurrency` prompts are in flight.

    An answer that ended by itself has `eos_ids[0]` last: engines do not show which stop it was, and chat models have
    one. Raises what the engine answers, for example RequestError when a prompt does not fit its context.
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
    tick: Tick = lambda: None,
) -> int:
    """Append the answers to those prompts that `path` does not answer yet, one line each, and say how many.

    A killed run is taken up by calling this again: a last line that it left half written is dropped. `tick` is called
    once per prompt of `prompts`, answered before or now. Raises DataError when `path` is no file of answers.
    """
    known = _answered(path)
    missing = [prompt for prompt in dict.fromkeys(prompts) if prompt not in known]
    for _ in range(len(prompts) - len(missing)):
        tick()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for index, answer in greedy_answers(engine, missing, max_tokens, eos_ids):
            file.write(json.dumps({"prompt": missing[index], "answer": answer}) + "\n")
            file.flush()
            tick()
    return len(missing)


def _answered(path: Path) -> set[TokenIds]:
    """The prompts that `path` answers, after cutting off an unfinished last line."""
    if not path.exists():
        return set()
    try:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        prompts = {tuple(json.loads(line)["prompt"]) for line in whole.splitlines() if line.strip()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no file of answers to add to: {error!r}") from error
    if len(whole) < len(data):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return prompts
