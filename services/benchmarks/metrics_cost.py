"""What metrics cost a cycle: everything that is counted and observed for it, in the Router and in both engines.

One completion of `prove` runs again and again, in turn with metrics and without. The difference is small against what a
machine does from one moment to the next, so the metrics' own work is also timed alone, on the steps and passes of a
completion, and that is the figure to go by.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from prometheus_client import generate_latest

from prove_core.config import EngineConfig, ModelConfig
from prove_core.engine.build import build_engine
from prove_core.engine.engine import Engine
from prove_core.engine.local import complete
from prove_core.engine.observer import UNOBSERVED, EngineObserver
from prove_core.types import DecodingParams, GenerateRequest, Limits, Mode, Role, Step
from services.benchmarks.alternate import alternate, paired_ratio
from services.benchmarks.overhead import BLOCK_SIZE, PROMPT, null_engine
from services.benchmarks.report import Report
from services.metrics.engine import EngineMetrics
from services.metrics.metric import Part
from services.metrics.registry import Identity, Registry
from services.metrics.requests import ChoiceMeter, RequestMetrics
from services.metrics.router import RouterMetrics

REPLAYS = 50
SCRAPE_INTERVAL_S = 5.0  # as in dashboards/prometheus/prometheus.yml
CYCLES_WITH_MODELS = 24


@dataclass(frozen=True, slots=True)
class _Completion:
    """What happened in one completion. `passes`: rows and seconds; `waits`: queue seconds of each call."""

    steps: list[Step]
    passes: list[tuple[int, float]]
    waits: list[float]

    @property
    def cycles(self) -> int:
        return sum(step.cost.cycles for step in self.steps)


class _Recorder:
    """Implements `EngineObserver` for a later replay."""

    def __init__(self) -> None:
        self.passes: list[tuple[int, float]] = []
        self.waits: list[float] = []

    def passed(self, rows: int, seconds: float) -> None:
        self.passes.append((rows, seconds))

    def answered(self, queue_seconds: float, prefill_seconds: float | None) -> None:
        self.waits.append(queue_seconds)


class _Pair:
    """Two engines, a Router's metrics, and those of the engines."""

    def __init__(self, engines: Mapping[Role, Engine], cycles: int) -> None:
        self._engines = engines
        self._cycles = cycles
        self._router = Registry(Identity(Part.ROUTER, "bench", "bench"))
        self._requests = RequestMetrics(RouterMetrics(self._router))
        self._registries = {role: Registry(Identity(Part(role.value), "bench", "bench")) for role in Role}
        self._observers = {
            role: EngineMetrics(registry, engines[role].stats) for role, registry in self._registries.items()
        }

    def meter(self) -> ChoiceMeter:
        return self._requests.request(Mode.PROVE, len(PROMPT), 1, time.perf_counter()).choices[0]

    def decode(self, observers: Mapping[Role, EngineObserver], add: Callable[[Step], None]) -> float:
        """Seconds per cycle of one completion."""
        for role, observer in observers.items():
            self._engines[role].observe(observer)
        params = DecodingParams(Mode.PROVE, block_size=BLOCK_SIZE)
        request = GenerateRequest("metrics", PROMPT, params, Limits(self._cycles * BLOCK_SIZE))
        cycles = 0
        began = time.perf_counter()
        for event in complete(self._engines, request):
            if isinstance(event, Step):
                add(event)
                cycles += event.cost.cycles
        return (time.perf_counter() - began) / cycles

    def with_metrics(self, _: int) -> float:
        return self.decode(self._observers, self.meter().add)

    def without_metrics(self, _: int) -> float:
        return self.decode(dict.fromkeys(Role, UNOBSERVED), lambda step: None)

    def record(self) -> _Completion:
        recorder, steps = _Recorder(), list[Step]()
        self.decode(dict.fromkeys(Role, recorder), steps.append)
        return _Completion(steps, recorder.passes, recorder.waits)

    def replay(self, seen: _Completion) -> float:
        """Seconds per cycle that the metrics take for what was seen."""
        meter, observer = self.meter(), self._observers[Role.PROPOSER]
        began = time.perf_counter()
        for step in seen.steps:
            meter.add(step)
        for rows, seconds in seen.passes:
            observer.passed(rows, seconds)
        for seconds in seen.waits:
            observer.answered(seconds, None)
        return (time.perf_counter() - began) / seen.cycles

    def scrape(self, _: int) -> float:
        """Seconds that a scrape of all three takes."""
        began = time.perf_counter()
        for registry in (self._router, *self._registries.values()):
            generate_latest(registry.collector)
        return time.perf_counter() - began


@contextmanager
def _pair(configs: Mapping[Role, EngineConfig], cycles: int) -> Iterator[_Pair]:
    engines = {role: build_engine(config, name=role.value, plans=False).engine for role, config in configs.items()}
    try:
        yield _Pair(engines, cycles)
    finally:
        for engine in engines.values():
            engine.stop()


def run(repeats: int, cycles: int, *, with_models: bool, say: Callable[[str], None]) -> Report:
    """Measure with null models and, if asked, what share of a cycle of the default pair it is."""
    say("null models ...")
    with _pair(dict.fromkeys(Role, null_engine()), cycles) as pair:
        seen = pair.record()
        turns = alternate({"with": pair.with_metrics, "without": pair.without_metrics}, range(repeats))
        alone = [pair.replay(seen) for _ in range(REPLAYS)]
        scrapes = [pair.scrape(index) for index in range(REPLAYS)]
    samples = {f"null_cycle_{name}_us": [1e6 * value for value in values] for name, values in turns.items()}
    samples |= {"metrics_us": [1e6 * value for value in alone], "scrape_ms": [1e3 * value for value in scrapes]}
    ratios = {
        "null_with_vs_without": paired_ratio(turns["with"], turns["without"]),
        "share_of_null_cycle": median(alone) / median(turns["without"]),
        "share_of_time_scraping": median(scrapes) / SCRAPE_INTERVAL_S,
    }
    if with_models:
        say("default pair ...")
        models = {role: EngineConfig(model=ModelConfig(checkpoint=f"default-{role.value}")) for role in Role}
        with _pair(models, CYCLES_WITH_MODELS) as pair:
            real = alternate({"with": pair.with_metrics, "without": pair.without_metrics}, range(max(2, repeats // 10)))
        samples |= {f"model_cycle_{name}_us": [1e6 * value for value in values] for name, values in real.items()}
        ratios["model_with_vs_without"] = paired_ratio(real["with"], real["without"])
        ratios["share_of_model_cycle"] = median(alone) / median(real["without"])
    figures = {name: round(median(values), 3) for name, values in samples.items()}
    config = {"repeats": repeats, "cycles": cycles, "block_size": BLOCK_SIZE, "prompt_tokens": len(PROMPT)}
    return Report("metrics", config, samples, figures, {name: round(value, 5) for name, value in ratios.items()})
