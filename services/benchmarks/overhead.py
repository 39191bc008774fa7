"""What a cycle costs beyond its forward passes: scheduling, packing, trimming, acceptance, and the way there.

`one_model`: cycles of `lossless` inside an engine. `two_replica`: cycles of `prove` through two replicas of a running
Ray Serve application. Null models answer at once, so that passes do not blur the figure; real ones show the same.
"""

import queue
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import median

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.build import NULL_CHECKPOINT, build_engine
from prove_core.errors import ProveError
from prove_core.types import DecodingParams, Finished, GenerateRequest, Limits, Mode, Step

PROMPT = tuple(range(1000, 1200))
BLOCK_SIZE = 8
WARM_UP = 3


def null_engine() -> EngineConfig:
    """An engine without a model."""
    return EngineConfig(model=ModelConfig(checkpoint=NULL_CHECKPOINT), cache=CacheConfig(tokens=8192))


def one_model(config: EngineConfig, cycles: int) -> list[float]:
    """Milliseconds per `lossless` cycle beyond its two passes, for `cycles` cycles of one session."""
    engine = build_engine(config, name="overhead").engine
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


def summarise(
    samples: dict[str, list[float]], name: Callable[[str], str] = lambda key: f"{key}_ms"
) -> dict[str, float]:
    """The median of each list of samples."""
    return {name(key): round(median(values), 4) for key, values in samples.items()}
