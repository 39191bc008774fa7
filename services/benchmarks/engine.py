"""`prove bench engine`: forward passes against what the machine allows, and AR decoding against transformers."""

import random
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from statistics import median

import torch

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.build import NULL_CHECKPOINT, model_runner
from prove_core.errors import CheckpointError
from prove_core.model.loader import LoadedModel, load
from prove_core.model.probe import probe
from prove_core.model.progress import Progress
from prove_core.model.runner import ModelRunner
from prove_core.model.threads import thread_choice
from prove_core.text.context import completion_limit
from prove_core.types import DecodingParams, Limits, Mode, Role
from services.benchmarks.alternate import alternate, paired_ratio
from services.benchmarks.decoding import Decoded, Task, one_by_one
from services.benchmarks.floors import MachineLimits, ModelSize, PassSize, measure_limits, model_size, seconds
from services.benchmarks.pass_figures import pass_figures, pass_ratios
from services.benchmarks.passes import MOST_ROWS, Shape, fill, products_alone, shapes
from services.benchmarks.peer import Peer, decoded_by
from services.benchmarks.prompts import rendered, text_engine
from services.benchmarks.report import Report, thread_settings
from services.cli.progress import reporting

PROMPT = (
    "A baker makes 18 loaves every morning. She keeps 2 for her family, sells 12 in her shop for 4 dollars each and "
    "gives the rest to the school. How many dollars does she earn in a week of 6 days, and how many loaves does the "
    "school get? Explain each step."
)
_WARM_UP = 4  # passes of each shape: enough to try every choice of threads


@dataclass(frozen=True, slots=True)
class Passes:
    """What was measured: the machine, the model, and by name the shapes of passes and milliseconds of each repeat.

    `samples` has `NAME_pass_ms` and `NAME_products_ms` for each name in `sizes`.
    """

    limits: MachineLimits
    model: ModelSize
    sizes: Mapping[str, PassSize]
    samples: dict[str, list[float]]


def run(model: ModelConfig, context: int, tokens: int, repeats: int) -> Report:
    """Measure passes behind `context` tokens of KV, then greedy decoding of `tokens` tokens after a short prompt.

    Raises CheckpointError or UnsupportedModel for a checkpoint that cannot be served, ContextLengthExceeded.
    """
    if model.checkpoint == NULL_CHECKPOINT:
        raise CheckpointError("the null checkpoint has no passes to measure: use a real one")
    config = {"context": context, "tokens": tokens, "repeats": repeats, **model.model_dump(), **thread_settings()}
    with reporting(enabled=True) as progress:
        passes = time_passes(model, context, repeats, progress)
        decoded = _decode(model, tokens, repeats, progress)
    ours, theirs = decoded["ar"], decoded["transformers"]
    rates = {f"{name}_tokens_per_second": [each.rate for each in runs] for name, runs in decoded.items()}
    measured = passes.samples, passes.model, passes.limits, passes.sizes
    figures = pass_figures(*measured) | {name: median(values) for name, values in rates.items()}
    figures["transformers_equal_outputs"] = sum(a.outputs == b.outputs for a, b in zip(ours, theirs, strict=True))
    ratios = pass_ratios(*measured)
    ratios["ar_vs_transformers"] = paired_ratio([each.rate for each in ours], [each.rate for each in theirs])
    return Report(name="engine", config=config, samples=passes.samples | rates, figures=figures, ratios=ratios)


def time_passes(model: ModelConfig, context: int, repeats: int, progress: Progress) -> Passes:
    """Load a model as an engine does, and time its passes; leaves torch's number of threads as it was."""
    threads = torch.get_num_threads()
    loaded = load(model, progress)
    completion_limit(context, MOST_ROWS, loaded.info.context_length)
    size = model_size(loaded.model, probe(loaded.model))
    progress.stage("measuring the machine")
    limits = measure_limits(loaded.model.device, loaded.model.dtype)
    config = EngineConfig(model=model, cache=CacheConfig(tokens=context + MOST_ROWS))
    runner = model_runner(config, loaded)
    chosen = shapes(proposes=loaded.info.placeholder_id is not None)
    cases = _cases(loaded, runner, chosen, context, config.cache)
    progress.stage("measuring passes", repeats * len(cases))
    alternate(cases, range(_WARM_UP))
    results = alternate(cases, range(repeats), lambda: progress.advance(1))
    torch.set_num_threads(threads)
    samples = {f"{name}_ms": [value * 1e3 for value in values] for name, values in results.items()}
    return Passes(limits, size, {name: shape.size(context) for name, shape in chosen.items()}, samples)


def _cases(
    loaded: LoadedModel, runner: ModelRunner, chosen: Mapping[str, Shape], context: int, cache: CacheConfig
) -> dict[str, Callable[[int], float]]:
    """What gives the seconds of each shape's pass, and of its matrix products alone."""
    device, threads = loaded.model.device, torch.get_num_threads()
    draw = random.Random(0)
    ids = tuple(draw.randrange(loaded.info.vocab_size) for _ in range(context + MOST_ROWS))
    pages = range(cache.pages)
    fill(runner, ids, context, pages)

    def whole(shape: Shape) -> Callable[[int], float]:
        window = shape.window(ids, context, pages)
        return lambda _: seconds(lambda: runner.run([window]), device)

    def alone(shape: Shape) -> Callable[[int], float]:
        work = _products(runner, loaded, shape.size(context))
        choice = thread_choice(threads) if device.type == "cpu" else None  # as the runner chooses for itself

        def case(_: int) -> float:
            with nullcontext() if choice is None else choice.timed(1):
                return seconds(work, device)

        return case

    cases = {f"{name}_pass": whole(shape) for name, shape in chosen.items()}
    return cases | {f"{name}_products": alone(shape) for name, shape in chosen.items()}


def _products(runner: ModelRunner, loaded: LoadedModel, size: PassSize) -> Callable[[], None]:
    native = runner.native
    if native is None:
        return products_alone(loaded.model, loaded.rows, size)
    return lambda: native.products(size.rows, size.placeholders)


def _decode(model: ModelConfig, tokens: int, repeats: int, progress: Progress) -> dict[str, list[Decoded]]:
    """AR by our engine and by transformers, prefill included, to the same number of tokens."""
    peer = Peer(model, torch.get_num_threads(), progress)
    with text_engine(model, tokens=tokens + 1024, name="engine", progress=progress, prefix_cache=False) as built:
        (prompt,) = rendered(built.info, [PROMPT])
        task: Task = (prompt, Limits(completion_limit(len(prompt), tokens, built.info.context_length)))
        engines = {Role.PROPOSER: built.engine}
        cases: dict[str, Callable[[list[Task]], Decoded]] = {
            "ar": lambda tasks: one_by_one(engines, tasks, DecodingParams(Mode.AR)),
            "transformers": lambda tasks: decoded_by(peer, tasks),
        }
        progress.stage("decoding", repeats * len(cases))
        alternate(cases, [[task]])
        return alternate(cases, [[task]] * repeats, lambda: progress.advance(1))
