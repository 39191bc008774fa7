"""`prove bench overlap`: mode `prove` with the proposer at work while the verifier reads, against one after the other.

Two replicas of one thread each, so that on two cores neither takes the other's. Prompts are decoded for real and both
ways take turns; their texts must be the same, up to near-ties in bfloat16.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

from ray.serve.handle import DeploymentHandle

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.evaluation.prompts import read_prompts
from prove_core.model.info import read_info
from prove_core.text.context import completion_limit
from prove_core.types import DecodingParams, GenerateRequest, Limits, Role
from services.benchmarks.alternate import alternate, paired_ratio
from services.benchmarks.cycle_probe import Probed, local_ray, probing
from services.benchmarks.prompts import rendered
from services.benchmarks.report import Report
from services.cli.progress import reporting

TOKENS = 4096  # of each KV pool
WAIT_S = 600.0
SEQUENTIAL, OVERLAPPED = "sequential", "overlapped"


def run(
    proposer: ModelConfig,
    verifier: ModelConfig,
    data: Path,
    params: DecodingParams,
    *,
    limit: int,
    max_tokens: int,
    repeats: int,
) -> Report:
    """Decode the first prompts of `data` with `params.overlap_rows`, and without. Raises as loading and reading do."""
    texts = read_prompts(data, limit)
    with reporting(enabled=True) as progress:
        info = read_info(proposer, progress)
        limits = Limits(max_tokens, frozenset(info.eos_ids))
        requests = [GenerateRequest(f"overlap-{i}", ids, params, limits) for i, ids in enumerate(rendered(info, texts))]
        for request in requests:
            completion_limit(len(request.prompt), max_tokens, min(TOKENS, info.context_length))
        progress.stage("starting two replicas")
        with local_ray(), probing(_engine(proposer), _engine(verifier)) as probe:
            cases = {
                SEQUENTIAL: partial(_decode, probe, overlap_rows=0),
                OVERLAPPED: partial(_decode, probe, overlap_rows=params.overlap_rows),
            }
            progress.stage("decoding", (1 + repeats * len(requests)) * len(cases))
            results = alternate(cases, requests[:1] + requests * repeats, lambda: progress.advance(1))
    config = {
        "data": data.name,
        "proposer": proposer.model_dump(),
        "verifier": verifier.model_dump(),
        "theta": params.theta,
        "block_size": params.block_size,
        "overlap_rows": params.overlap_rows,
        "prompts": len(requests),
        "max_tokens": max_tokens,
        "repeats": repeats,
    }
    return _report({name: each[1:] for name, each in results.items()}, config)


def _engine(model: ModelConfig) -> EngineConfig:
    """One thread: the other core is the other model's. No prefix cache: each completion pays for its prompt."""
    one_thread = model.model_copy(update={"threads": 1})
    return EngineConfig(model=one_thread, cache=CacheConfig(tokens=TOKENS, prefix_cache=False))


def _decode(probe: DeploymentHandle, request: GenerateRequest, *, overlap_rows: int) -> Probed:
    params = replace(request.params, overlap_rows=overlap_rows)
    result: Probed = probe.decode.remote(replace(request, params=params)).result(timeout_s=WAIT_S)
    return result


def _report(results: dict[str, Sequence[Probed]], config: dict[str, object]) -> Report:
    """Figures are medians over completions; the longer pass is what a cycle that overlaps perfectly would take."""
    samples = {
        f"{name}_cycle_ms": [1e3 * each.seconds / each.cycles for each in found] for name, found in results.items()
    }
    for name, found in results.items():
        for role in Role:
            samples[f"{name}_{role.value}_pass_ms"] = [
                1e3 * each.pass_seconds[role] / each.passes[role] for each in found
            ]
    samples["foreseen_share"] = [
        1 - (each.passes[Role.PROPOSER] - each.cycles) / each.cycles for each in results[OVERLAPPED]
    ]
    pairs = list(zip(results[SEQUENTIAL], results[OVERLAPPED], strict=True))
    figures = {name: round(median(values), 3) for name, values in samples.items()}
    figures |= {
        "tokens_per_cycle": sum(len(each.tokens) for each, _ in pairs) / sum(each.cycles for each, _ in pairs),
        "completions": len(pairs),
        "identical_texts": sum(one.tokens == other.tokens for one, other in pairs),
    }
    sequential, overlapped = samples[f"{SEQUENTIAL}_cycle_ms"], samples[f"{OVERLAPPED}_cycle_ms"]
    longer = [max(1e3 * each.pass_seconds[role] / each.cycles for role in Role) for each in results[OVERLAPPED]]
    ratios = {
        "sequential_vs_overlapped": paired_ratio(sequential, overlapped),
        "overlapped_vs_longer_model": paired_ratio(overlapped, longer),
    }
    return Report(name="overlap", config=config, samples=samples, figures=figures, ratios=ratios)
