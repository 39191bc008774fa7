"""`prove bench ranks`: passes of several ranks on this machine's CPU against those of one process on the same cores."""

import multiprocessing
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import torch

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.build import follow_engine, model_runner
from prove_core.model.loader import LoadedModel, load
from prove_core.model.parallel import LeadingRunner
from prove_core.model.place import Place
from prove_core.model.ranks import Ranks, join_ranks, open_store
from prove_core.model.window import Runner, Window
from services.benchmarks.alternate import alternate, paired_ratio
from services.benchmarks.floors import seconds
from services.benchmarks.passes import MOST_ROWS, fill, shapes
from services.benchmarks.report import Report, thread_settings
from services.cli.progress import reporting

SHAPES = ("ar", "window16", "propose8")
_HERE = "127.0.0.1"
_WARM_UP = 2


def run(model: ModelConfig, size: int, context: int, repeats: int) -> Report:
    """Milliseconds of passes behind `context` tokens of KV, by one process and by `size` ranks in turns.

    Both run on torch's kernels. Raises CheckpointError or UnsupportedModel.
    """
    plain = {"device": "cpu", "kernels": "torch"}
    config = EngineConfig(
        model=model.model_copy(update=plain), cache=CacheConfig(tokens=context + MOST_ROWS), cuda_graphs="off"
    )
    cores = len(os.sched_getaffinity(0))
    with reporting(enabled=True) as progress, _leading(config, size, max(1, cores // size)) as ranks:
        progress.stage("loading models")
        loaded = load(config.model)
        shared = LeadingRunner(model_runner(config, load(config.model, ranks=ranks)), ranks)
        progress.stage("timing passes")
        cases = {"single": _timed(model_runner(config, loaded), cores), "ranks": _timed(shared, max(1, cores // size))}
        samples = _measure(cases, loaded, config, context, repeats)
        shared.close()
    figures = {name: median(values) for name, values in samples.items()}
    ratios = {
        f"{name}_ranks_vs_single": paired_ratio(samples[f"{name}_ranks_ms"], samples[f"{name}_single_ms"])
        for name in SHAPES
        if f"{name}_ranks_ms" in samples
    }
    described = {"ranks": size, "context": context, "repeats": repeats, **config.model.model_dump()}
    return Report("ranks", described | thread_settings(), samples, figures, ratios)


Timed = Callable[[Callable[[Runner], object]], float]


def _timed(runner: Runner, threads: int) -> Timed:
    """Gives the milliseconds of what is done with the runner, on so many threads."""

    def time(work: Callable[[Runner], object]) -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return 1e3 * seconds(lambda: work(runner), torch.device("cpu"))
        finally:
            torch.set_num_threads(before)

    return time


def _measure(
    cases: dict[str, Timed], loaded: LoadedModel, config: EngineConfig, context: int, repeats: int
) -> dict[str, list[float]]:
    """`SHAPE_CASE_ms`, one a repeat."""
    draw = random.Random(0)
    ids = tuple(draw.randrange(loaded.info.vocab_size) for _ in range(context + MOST_ROWS))
    pages = range(config.cache.pages)
    known = shapes(proposes=loaded.info.placeholder_id is not None)
    samples: dict[str, list[float]] = {}
    for timed in cases.values():
        timed(lambda runner: fill(runner, ids, context, pages))
    for name in SHAPES:
        if name not in known:
            continue
        turns = [_pass(known[name].window(ids, context, pages))] * (repeats + _WARM_UP)
        for case, values in alternate(cases, turns).items():
            samples[f"{name}_{case}_ms"] = values[_WARM_UP:]
    return samples


def _pass(window: Window) -> Callable[[Runner], object]:
    return lambda runner: runner.run([window])


@contextmanager
def _leading(config: EngineConfig, size: int, threads: int) -> Iterator[Ranks]:
    """Rank 0 of `size`, the others being processes of their own; they end with it."""
    store = open_store(_HERE)
    start = multiprocessing.get_context("spawn")
    places = [Place(rank, size, _HERE, _HERE, store.port) for rank in range(size)]
    others = [start.Process(target=_follow, args=(config, place, threads), daemon=True) for place in places[1:]]
    for process in others:
        process.start()
    try:
        yield join_ranks(places[0], torch.device("cpu"), deterministic=False)
        for process in others:
            process.join()
    finally:
        for process in others:
            process.kill()


def _follow(config: EngineConfig, place: Place, threads: int) -> None:
    torch.set_num_threads(threads)
    follow_engine(config, join_ranks(place, torch.device("cpu"), deterministic=False))
