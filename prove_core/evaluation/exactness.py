"""Is lossless decoding exact? Compares its ids with those of plain AR decoding in the same engine, prompt by prompt."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prove_core.engine.engine import Engine
from prove_core.engine.many import complete_many
from prove_core.types import DecodingParams, GenerateRequest, Limits, Mode, Step, TokenIds

Tick = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Exactness:
    """`lossless` against `ar` at one block size. `accepted[a]`: cycles that accepted `a` candidates."""

    block_size: int
    prompts: int
    equal: int
    first_difference: tuple[int, ...]
    accepted: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Completion:
    tokens: TokenIds
    steps: tuple[Step, ...]


def compare(
    engine: Engine,
    prompts: Sequence[TokenIds],
    limits: Limits,
    block_sizes: Sequence[int],
    *,
    concurrency: int = 8,
    tick: Tick = lambda: None,
) -> list[Exactness]:
    """Decode every prompt with `ar`, then with `lossless` at each block size, `concurrency` at a time."""
    reference = _complete(engine, prompts, DecodingParams(Mode.AR), limits, concurrency, tick)
    return [
        _judge(
            size,
            reference,
            _complete(engine, prompts, DecodingParams(Mode.LOSSLESS, block_size=size), limits, concurrency, tick),
        )
        for size in block_sizes
    ]


def _judge(size: int, reference: Sequence[_Completion], ours: Sequence[_Completion]) -> Exactness:
    pairs = [(ar.tokens, lossless.tokens) for ar, lossless in zip(reference, ours, strict=True)]
    accepted = [step.accepted for completion in ours for step in completion.steps if step.drafted]
    return Exactness(
        block_size=size,
        prompts=len(pairs),
        equal=sum(ar == lossless for ar, lossless in pairs),
        first_difference=tuple(_first_difference(ar, lossless) for ar, lossless in pairs if ar != lossless),
        accepted=tuple(accepted.count(length) for length in range(size)),
    )


def _first_difference(a: TokenIds, b: TokenIds) -> int:
    same = [x == y for x, y in zip(a, b, strict=False)]
    return same.index(False) if False in same else len(same)


def _complete(
    engine: Engine,
    prompts: Sequence[TokenIds],
    params: DecodingParams,
    limits: Limits,
    concurrency: int,
    tick: Tick,
) -> list[_Completion]:
    """All prompts, keeping `concurrency` in the engine at once."""
    requests = [GenerateRequest(f"exactness-{i}", prompt, params, limits) for i, prompt in enumerate(prompts)]
    steps: list[list[Step]] = [[] for _ in prompts]
    for index, event in complete_many(engine, requests, concurrency):
        if isinstance(event, Step):
            steps[index].append(event)
        else:
            tick()
    return [_Completion(tuple(t for step in each for t in step.tokens), tuple(each)) for each in steps]
