"""`prove bench prefix`: how far a proposer's blocks agree with its own greedy continuation."""

from pathlib import Path

from prove_core.config import ModelConfig
from prove_core.evaluation.prefix import PrefixFigures
from prove_core.evaluation.prompts import read_prompts
from prove_core.evaluation.served_prefix import measure_served
from prove_core.training.dataset import Example
from prove_core.training.distill import greedy_answers
from services.benchmarks.prompts import rendered, text_engine
from services.benchmarks.report import Report
from services.cli.progress import reporting


def run(model: ModelConfig, data: Path, limit: int, block_sizes: list[int], max_tokens: int, stride: int) -> Report:
    """Let the proposer answer `limit` prompts by AR, then compare blocks that it proposes along its answers with them.

    A gated adapter's AR answers are the stock model's.
    """
    texts = read_prompts(data, limit)
    with (
        reporting(enabled=True) as progress,
        text_engine(model, tokens=32768, name="prefix", progress=progress) as built,
    ):
        prompts = rendered(built.info, texts)
        progress.stage("answering the prompts", len(prompts))
        trajectories = []
        for index, answer in greedy_answers(built.engine, prompts, max_tokens, built.info.eos_ids):
            trajectories.append(Example(prompts[index], answer))
            progress.advance(1)
        results = []
        for size in block_sizes:
            progress.stage(f"proposing blocks of {size}", len(trajectories))
            results.append(
                measure_served(built.engine, trajectories, size, stride=stride, tick=lambda: progress.advance(1))
            )
    figures: dict[str, float] = {"prompts": len(texts), "prefix_mean": results[0].mean}
    for result in results:
        figures[f"prefix_mean_b{result.block_size}"] = result.mean
        figures[f"anchors_b{result.block_size}"] = result.anchors
    samples = {key: value for result in results for key, value in _curves(result).items()}
    adapter = None if model.adapter is None else Path(model.adapter).name
    config = {"data": data.name, "max_tokens": max_tokens, "stride": stride, "dtype": model.dtype}
    return Report(
        name="prefix",
        config=config | {"checkpoint": model.checkpoint, "adapter": adapter},
        samples=samples,
        figures=figures,
    )


def _curves(result: PrefixFigures) -> dict[str, list[float]]:
    """By place in the block: is the candidate right (given the block's own tokens before), and are all up to it."""
    size = result.block_size
    return {f"match_b{size}": list(result.match), f"survival_b{size}": list(result.survival)}
