"""What a cycle costs beyond its forward passes: scheduling, packing, trimming, acceptance, and the way there.

`one_model`: cycles of `lossless` inside an engine. `two_replica`: cycles of `prove` through two replicas of a running
Ray Serve application. Null models answer at once, so that passes do not blur the figure; real ones show the same.
"""

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.build import NULL_CHECKPOINT, build_engine
from prove_core.errors import ProveError
from prove_core.types import DecodingParams, Finished, GenerateRequest, Limits, Mode, Role, Step
from services.benchmarks.report import Report

PROMPT = tuple(range(1000, 1200))
BLOCK_SIZE = 8
WARM_UP = 3
CYCLES_WITH_MODELS = 60  # a pass of a real model takes tens of milliseconds on a CPU


@dataclass(frozen=True, slots=True)
class _Kind:
    """A pair of engines to measure; `suffix` ends the names of its figures."""

    suffix: str
    proposer: EngineConfig
    verifier: EngineConfig
    cycles: int


def null_engine() -> EngineConfig:
    """An engine without a model."""
    return EngineConfig(model=ModelConfig(checkpoint=NULL_CHECKPOINT), cache=CacheConfig(tokens=8192))


def one_model(config: EngineConfig, cycles: int) -> list[float]:
    """Milliseconds per `lossless` cycle beyond its two passes, for `cycles` cycles of one session."""
    engine = build_engine(config, name="overhead", plans=False).engine
    try:
        marks: list[tuple[float, float]] = []
        ended: queue.SimpleQueue[Finished | ProveError] = queue.SimpleQueue()

        def emit(event: Step | Finished | ProveError) -> None:
            if not isinstance(event, Step):
                ended.put(event)
            elif event.drafted:
                marks.append((time.perf_counter(), engine.stats().pass_seconds))

        params = DecodingParams(Mode.LOSSLESS, block_size=BLOCK_SIZE)
        limits = Limits((cycles + WARM_UP + 1) * (BLOCK_SIZE + 1))
        engine.generate(GenerateRequest("overhead", PROMPT, params, limits), emit)
        end = ended.get()
        if isinstance(end, ProveError):
            raise end
    finally:
        engine.stop()
    return _beyond_passes(marks)[WARM_UP : WARM_UP + cycles]


def _beyond_passes(marks: list[tuple[float, float]]) -> list[float]:
    return [((end - begin) - (after - before)) * 1e3 for (begin, before), (end, after) in pairwise(marks)]


def two_replica(proposer: EngineConfig, verifier: EngineConfig, cycles: int) -> list[float]:
    """Milliseconds per `prove` cycle beyond its two passes, through one replica of each role."""
    from services.benchmarks.cycle_probe import probing  # noqa: PLC0415  ray is slow to import

    tokens = (cycles + WARM_UP + 1) * BLOCK_SIZE
    with probing(proposer, verifier) as probe:
        samples: list[float] = probe.overheads.remote(list(PROMPT), tokens, BLOCK_SIZE).result(timeout_s=600)
    return samples[WARM_UP : WARM_UP + cycles]


def run(cycles: int, *, with_models: bool, say: Callable[[str], None]) -> Report:
    """Measure both kinds, with null models and, if asked, with the default pair."""
    from services.benchmarks.cycle_probe import local_ray  # noqa: PLC0415  ray is slow to import

    kinds = [_Kind("", null_engine(), null_engine(), cycles)]
    if with_models:
        proposer, verifier = (EngineConfig(model=ModelConfig(checkpoint=f"default-{role}")) for role in Role)
        kinds.append(_Kind("_models", proposer, verifier, min(cycles, CYCLES_WITH_MODELS)))
    samples: dict[str, list[float]] = {}
    for kind in kinds:
        say(f"one_model{kind.suffix} ...")
        samples[f"one_model{kind.suffix}"] = one_model(kind.proposer, kind.cycles)
    with local_ray():
        for kind in kinds:
            say(f"two_replica{kind.suffix} ...")
            samples[f"two_replica{kind.suffix}"] = two_replica(kind.proposer, kind.verifier, kind.cycles)
    figures = {f"{name}_ms": round(median(values), 4) for name, values in samples.items()}
    figures |= {f"{name}_p90_ms": round(quantiles(values, n=10)[-1], 4) for name, values in samples.items()}
    config = {"cycles": cycles, "block_size": BLOCK_SIZE, "prompt_tokens": len(PROMPT)}
    return Report(name="overhead", config=config, samples=samples, figures=figures)
