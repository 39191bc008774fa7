"""`prove bench quality`: does a candidate, such as a base with an adapter, keep the AR quality of a reference?

Without `deterministic`, two models of the very same function may still answer differently in bfloat16. How a row is
rounded depends on which kernel computes it, that on how many rows share its pass, and that on what else the engine has
in flight at the moment: how long other answers are, which prompts were cut into chunks, what the prefix cache held.
A near-tie then falls either way, and from there the answers differ. Float32 makes such ties rare, `deterministic` rules
them out: a row has the same bits in every pass, so an adapter that acts on placeholder rows alone must show
`identical_share` 1. Its `perplexity_ratio` is 1 too if both models have the same placeholder: a placeholder is never
chosen, so the other tokens share its probability.
"""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from prove_core.config import ModelConfig
from prove_core.errors import DataError
from prove_core.evaluation.numbers import last_number, stated_result
from prove_core.evaluation.prompts import read_prompts
from prove_core.evaluation.quality import (
    Answer,
    Readings,
    Task,
    accuracy_figures,
    agreement_figures,
    answer_all,
    perplexity_figures,
    read_all,
)
from prove_core.evaluation.references import read_references
from prove_core.model.compatibility import check_compatible
from prove_core.model.info import CheckpointInfo, read_info
from prove_core.model.progress import Progress
from prove_core.text.data import DataTokenizer
from services.benchmarks.prompts import rendered, text_engine
from services.benchmarks.report import Report
from services.cli.progress import reporting

_AT_ONCE = 32  # answers in flight: the KV pool has room for them


def run(reference: ModelConfig, candidate: ModelConfig, data: Path, limit: int, max_tokens: int) -> Report:
    """Let both answer the first `limit` prompts of `data` greedily and read the reference's and the human answers.

    Both get the prompts in the reference's chat template. Raises DataError for lines that cannot be used,
    IncompatibleModels for two tokenizers, and what loading a checkpoint raises.
    """
    texts, references = read_prompts(data, limit), read_references(data, limit)
    with reporting(enabled=True) as progress:
        info, other = read_info(reference, progress), read_info(candidate, progress)
        check_compatible(info, other)
        tasks = _tasks(info, texts, [human for _, human in references])
        lengths = [len(task.prompt) + max(max_tokens, len(task.human)) for task in tasks]
        context = min(info.context_length, other.context_length)
        for (line, _), length in zip(references, lengths, strict=True):
            if length > context:
                raise DataError(f"{data}, line {line}: {length} tokens with its answer, the context holds {context}")
        pool = max(lengths) * min(_AT_ONCE, len(tasks))
        ours, our_readings = _measure(reference, "reference", tasks, max_tokens, None, pool, progress)
        theirs, their_readings = _measure(candidate, "candidate", tasks, max_tokens, ours, pool, progress)
    figures, samples = agreement_figures(ours, theirs, our_readings.answers, their_readings.answers, info.eos_ids)
    figures |= perplexity_figures("", our_readings.answers, their_readings.answers)
    figures |= perplexity_figures("human_", our_readings.human, their_readings.human)
    results = [None if human is None else stated_result(human) for _, human in references]
    if any(result is not None for result in results):
        right = [_right(info, answers, results) for answers in (ours, theirs)]
        figures |= accuracy_figures(*right)
        names = ("right_reference", "right_candidate")
        samples |= {name: [float(value) for value in values] for name, values in zip(names, right, strict=True)}
    config = {
        "data": data.name,
        "max_tokens": max_tokens,
        "reference": reference.model_dump(),
        "candidate": candidate.model_dump(),
    }
    return Report(name="quality", config=config, samples=samples, figures=figures)


def _tasks(info: CheckpointInfo, texts: Sequence[str], humans: Sequence[str | None]) -> list[Task]:
    tokenizer = DataTokenizer(info.tokenizer, info.eos_ids)
    answers = [() if human is None else tokenizer.answer(human) for human in humans]
    return [Task(*pair) for pair in zip(rendered(info, texts), answers, strict=True)]


def _measure(
    model: ModelConfig,
    name: str,
    tasks: Sequence[Task],
    max_tokens: int,
    reference: Sequence[Answer] | None,
    pool: int,
    progress: Progress,
) -> tuple[list[Answer], Readings]:
    """A model's answers, and its readings of the `reference` answers (None: of its own)."""
    with text_engine(model, tokens=pool, name=name, progress=progress) as built:
        progress.stage(f"{name}: answering the prompts", len(tasks))
        answers = answer_all(built.engine, tasks, max_tokens, built.info.eos_ids, lambda: progress.advance(1))
        progress.stage(f"{name}: reading answers", len(tasks))
        readings = read_all(built.engine, tasks, reference or answers, lambda: progress.advance(1))
    return answers, readings


def _right(info: CheckpointInfo, answers: Sequence[Answer], results: Sequence[Decimal | None]) -> list[bool]:
    """Does each answer whose task has a result end with that number?"""
    return [
        last_number(info.tokenizer.decode(answer.tokens, skip_special_tokens=True)) == result
        for answer, result in zip(answers, results, strict=True)
        if result is not None
    ]
