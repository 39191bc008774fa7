"""`prove bench modes`: prompts decoded for real in every mode, one or several in flight, in one process.

All settings take turns within each repeat (with one request in flight: at every prompt), so that what else the machine
does hits them alike. The prefix cache is off: each completion pays for its prompt.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from statistics import median

from prove_core.config import ModelConfig
from prove_core.engine.engine import Engine
from prove_core.errors import DataError
from prove_core.evaluation.prompts import read_prompts
from prove_core.model.compatibility import check_compatible
from prove_core.model.info import CheckpointInfo, read_info
from prove_core.model.progress import Progress
from prove_core.text.context import completion_limit
from prove_core.types import DecodingParams, Limits, Role
from services.benchmarks.agreement import Judge
from services.benchmarks.alternate import alternate
from services.benchmarks.decoding import Decoded, Task, one_by_one, together
from services.benchmarks.mode_figures import (
    AR,
    INEXACT,
    PEER,
    agreement_figures,
    best_settings,
    run_ratios,
    run_samples,
)
from services.benchmarks.mode_settings import Plan
from services.benchmarks.peer import Peer, decoded_by
from services.benchmarks.prompts import rendered, text_engine
from services.benchmarks.report import Report, thread_settings
from services.cli.progress import reporting

_WARM_UP = 8  # tokens of a completion
_SPARE = 128  # KV beyond a completion that a pass may take for a while

Case = Callable[[Sequence[Task]], Decoded]
Engines = Mapping[Role, Engine]
Runs = dict[int, dict[str, list[Decoded]]]


def run(proposer: ModelConfig, verifier: ModelConfig, data: Path, plan: Plan) -> Report:
    """Decode the first prompts of `data` in all settings of `plan`; those of two models take `verifier` too.

    Raises DataError, IncompatibleModels, RequestError for a proposer that has no placeholder, ContextLengthExceeded,
    and what loading a checkpoint raises.
    """
    texts = read_prompts(data, plan.limit)
    threads = thread_settings()  # before passes choose their own number
    settings = plan.settings()
    with reporting(enabled=True) as progress:
        tasks = _tasks(read_info(proposer, progress), texts, [*settings.values(), *plan.pairs().values()], plan)
        room = max(len(prompt) + limits.max_tokens for prompt, limits in tasks) + _SPARE
        pair = verifier if plan.pairs() else None
        with _engines(proposer, pair, room * max(plan.concurrency), progress) as engines:
            runs = {
                count: _decode(
                    tasks,
                    count,
                    plan.repeats,
                    _cases(engines, partial(Peer, proposer, threads["threads"], progress), plan, count),
                    progress,
                )
                for count in sorted(plan.concurrency)
            }
            agreements = _agreements(engines[Role.PROPOSER], tasks, runs, settings | plan.pairs(), proposer, progress)
    samples = {key: each for count, named in runs.items() for key, each in run_samples(named, count).items()}
    figures = {name: median(values) for name, values in samples.items()}
    ratios = {key: each for count, named in runs.items() for key, each in run_ratios(named, settings, count).items()}
    config = {
        "data": data.name,
        "proposer": proposer.model_dump(),
        "verifier": None if pair is None else pair.model_dump(),
        "plan": asdict(plan),
        "best": {str(count): best_settings(named, settings) for count, named in runs.items()},
        **threads,
    }
    return Report(name="modes", config=config, samples=samples, figures=figures | agreements, ratios=ratios)


def _tasks(info: CheckpointInfo, texts: Sequence[str], wanted: Sequence[DecodingParams], plan: Plan) -> list[Task]:
    for params in wanted:
        info.check_proposes(params)
    stops = frozenset(info.eos_ids)
    return [
        (prompt, Limits(completion_limit(len(prompt), plan.max_tokens, info.context_length), stops))
        for prompt in rendered(info, texts)
    ]


@contextmanager
def _engines(
    proposer: ModelConfig, verifier: ModelConfig | None, pool: int, progress: Progress
) -> Iterator[dict[Role, Engine]]:
    with text_engine(proposer, tokens=pool, name="proposer", progress=progress, prefix_cache=False, plans=True) as own:
        if verifier is None:
            yield {Role.PROPOSER: own.engine}
            return
        with text_engine(verifier, tokens=pool, name="verifier", progress=progress, prefix_cache=False) as other:
            check_compatible(own.info, other.info)
            yield {Role.PROPOSER: own.engine, Role.VERIFIER: other.engine}


def _cases(engines: Engines, peer: Callable[[], Peer], plan: Plan, count: int) -> dict[str, Case]:
    """What decodes tasks, `count` in flight, by name of the setting; alone, two models and the peer do too."""
    if count > 1:
        work = partial(together, engines[Role.PROPOSER], concurrency=count)
        return {name: partial(work, params=params) for name, params in plan.settings().items()}
    alone: dict[str, Case] = {
        name: partial(one_by_one, engines, params=params) for name, params in (plan.settings() | plan.pairs()).items()
    }
    return alone | {PEER: partial(decoded_by, peer())}


def waves(tasks: Sequence[Task], count: int) -> list[list[Task]]:
    """What is decoded together: alone each task for itself, else all of them, over again for two rounds of `count`."""
    if count == 1:
        return [[task] for task in tasks]
    total = max(len(tasks), 2 * count)
    return [[tasks[index % len(tasks)] for index in range(total)]]


def _decode(
    tasks: Sequence[Task], count: int, repeats: int, cases: Mapping[str, Case], progress: Progress
) -> dict[str, list[Decoded]]:
    """By name of the case one result a repeat."""
    work = waves(tasks, count)
    short = [(prompt, replace(limits, max_tokens=min(limits.max_tokens, _WARM_UP))) for prompt, limits in work[0]]
    progress.stage(f"decoding, {count} in flight", (1 + repeats * len(work)) * len(cases))
    alternate(cases, [short[:count]], lambda: progress.advance(1))
    results = alternate(cases, work * repeats, lambda: progress.advance(1))
    size = len(work)
    runs = {
        name: [reduce(add, parts[start : start + size]) for start in range(0, len(parts), size)]
        for name, parts in results.items()
    }
    if not all(each.tokens for repeats in runs.values() for each in repeats):
        raise DataError("the answers to these prompts are empty: there is no rate to measure")
    return runs


def _agreements(
    engine: Engine,
    tasks: Sequence[Task],
    runs: Runs,
    settings: Mapping[str, DecodingParams],
    model: ModelConfig,
    progress: Progress,
) -> dict[str, float]:
    """What should be `ar`'s output, the peer's included, against what `ar` gave first with fewest in flight."""
    progress.stage("comparing outputs")
    reference = runs[min(runs)][AR][0].outputs[: len(tasks)]
    judge = Judge(engine, tasks, reference, model.dtype)
    figures: dict[str, float] = {}
    for count, named in runs.items():
        for name, repeats in named.items():
            if name in settings and settings[name].mode in INEXACT:
                continue
            agreements = [judge.agreement(each.outputs) for each in repeats]
            figures |= agreement_figures(name, count, reduce(add, agreements))
    return figures
