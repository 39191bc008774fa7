"""`prove bench exactness`: lossless against AR on a real checkpoint."""

from dataclasses import asdict
from pathlib import Path

from prove_core.config import ModelConfig
from prove_core.evaluation.exactness import compare
from prove_core.evaluation.prompts import read_prompts
from prove_core.types import Limits
from services.benchmarks.prompts import rendered, text_engine
from services.benchmarks.report import Report
from services.cli.progress import reporting


def run(model: ModelConfig, data: Path, limit: int, max_tokens: int, block_sizes: list[int]) -> Report:
    """Decode `limit` prompts with `ar` and with `lossless` at each block size, and count equal outputs."""
    texts = read_prompts(data, limit)
    with (
        reporting(enabled=True) as progress,
        text_engine(model, tokens=16384, name="exactness", progress=progress) as built,
    ):
        prompts = rendered(built.info, texts)
        limits = Limits(max_tokens, frozenset(built.info.eos_ids))
        progress.stage("decoding", len(prompts) * (1 + len(block_sizes)))
        results = compare(built.engine, prompts, limits, block_sizes, tick=lambda: progress.advance(1))
    figures: dict[str, float] = {"prompts": len(prompts)}
    for result in results:
        figures[f"equal_b{result.block_size}"] = result.equal
    samples = {f"accepted_b{r.block_size}": [float(n) for n in r.accepted] for r in results}
    samples |= {f"first_difference_b{r.block_size}": [float(n) for n in r.first_difference] for r in results}
    config = {
        "data": data.name,
        "max_tokens": max_tokens,
        "results": [asdict(r) for r in results],
        **model.model_dump(),
    }
    return Report(name="exactness", config=config, samples=samples, figures=figures)
