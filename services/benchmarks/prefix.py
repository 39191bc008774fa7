"""`prove bench prefix`: how far a gated adapter's blocks agree with the stock model's own greedy continuation."""

from pathlib import Path

from prove_core.config import ModelConfig
from prove_core.evaluation.prefix import PrefixFigures
from prove_core.evaluation.prompts import read_prompts
from prove_core.evaluation.proposer import measure_adapter
from prove_core.model.builtin import BUILTINS
from prove_core.model.progress import Progress
from prove_core.training.dataset import Example
from prove_core.training.distill import greedy_answers
from services.benchmarks.prompts import rendered, text_engine
from services.benchmarks.report import Report
from services.cli.progress import reporting


def run(
    data: Path, limit: int, block_sizes: list[int], max_tokens: int, checkpoint: str, adapter: Path | None
) -> Report:
    """Let the stock model answer `limit` prompts, then compare blocks proposed along its answers with them."""
    folder = adapter or BUILTINS["default-proposer"].adapter
    model = ModelConfig(checkpoint=checkpoint, adapter=str(folder))
    texts = read_prompts(data, limit)
    with reporting(enabled=True) as progress:
        trajectories = _answers(model.model_copy(update={"adapter": None}), texts, max_tokens, progress)
        results = measure_adapter(model, trajectories, block_sizes, progress=progress)
    figures: dict[str, float] = {"prompts": len(texts), "prefix_mean": results[0].mean}
    figures |= {f"prefix_mean_b{result.block_size}": result.mean for result in results}
    samples = {key: value for result in results for key, value in _curves(result).items()}
    config = {"data": data.name, "max_tokens": max_tokens, "checkpoint": checkpoint, "adapter": Path(str(folder)).name}
    return Report(name="prefix", config=config, samples=samples, figures=figures)


def _curves(result: PrefixFigures) -> dict[str, list[float]]:
    """By place in the block: is the candidate right, and are all up to it."""
    size = result.block_size
    return {f"match_b{size}": list(result.match), f"survival_b{size}": list(result.survival)}


def _answers(model: ModelConfig, texts: list[str], max_tokens: int, progress: Progress) -> list[Example]:
    with text_engine(model, tokens=32768, name="prefix", progress=progress) as built:
        prompts = rendered(built.info, texts)
        progress.stage("answering the prompts", len(prompts))
        examples = []
        for index, answer in greedy_answers(built.engine, prompts, max_tokens, built.info.eos_ids):
            examples.append(Example(prompts[index], answer))
            progress.advance(1)
        return examples
