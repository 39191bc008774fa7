"""`prove distill`: a model's own greedy answers to prompts, the data that training starts from."""

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.errors import DataError
from prove_core.types import TokenIds
from services.cli.durations import in_words
from services.cli.errors import STDERR, one_line_errors
from services.cli.options import Device, Dtype
from services.cli.progress import Display, reporting

INTERRUPTED = 130


@one_line_errors
def distill(
    data: Annotated[Path, typer.Option(help="JSONL with `prompt`, `question` or `messages` in each line.")],
    out: Annotated[Path, typer.Option(help="JSONL to append the answers to; what it answers already is left out.")],
    checkpoint: Annotated[str, typer.Option(help="Who answers: built-in name, folder or hub id.")] = (
        "smollm2-135m-instruct"
    ),
    adapter: Annotated[Path | None, typer.Option(help="Adapter folder on top of the checkpoint.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer; longer ones end without an end.")] = 160,
    concurrency: Annotated[int, typer.Option(min=1, help="Prompts at once; each takes KV memory.")] = 64,
    limit: Annotated[int | None, typer.Option(min=1, help="Use the first N prompts.")] = None,
    skip_long: Annotated[bool, typer.Option(help="Leave out prompts that don't fit the context.")] = False,
    dtype: Dtype = "bfloat16",
    device: Device = "auto",
) -> None:
    """Let a model answer prompts greedily. Interrupted, the same command goes on where it was."""
    model = ModelConfig(
        checkpoint=checkpoint, adapter=None if adapter is None else str(adapter), dtype=dtype, device=device
    )
    try:
        with reporting(enabled=True) as progress:
            answered = _run(model, data, out, max_tokens, concurrency, limit, skip_long, progress)
    except KeyboardInterrupt:
        STDERR.print(f"interrupted; {out} keeps what is answered: the same command goes on", markup=False)
        raise typer.Exit(INTERRUPTED) from None
    STDERR.print(f"{answered} answers added to {out}", markup=False, soft_wrap=True)


def _run(
    model: ModelConfig,
    data: Path,
    out: Path,
    max_tokens: int,
    concurrency: int,
    limit: int | None,
    skip_long: bool,
    progress: Display,
) -> int:
    from prove_core.engine.build import build_engine  # noqa: PLC0415  torch is slow to import
    from prove_core.model.info import read_info  # noqa: PLC0415
    from prove_core.text.data import DataTokenizer, ends_first  # noqa: PLC0415
    from prove_core.training import distill as core  # noqa: PLC0415
    from prove_core.training.prompts import read_prompt_ids, too_long  # noqa: PLC0415

    info = read_info(model, progress)
    progress.stage(f"reading {data}")
    text = DataTokenizer(info.tokenizer, info.eos_ids)
    prompts = read_prompt_ids(data, text, info.vocab_size, limit)
    longest = info.context_length - max_tokens
    complaint = too_long(prompts, longest)
    if complaint is not None:
        problem = f"{data}, {complaint}, which with {max_tokens} for the answer do not fit {info.context_length}"
        if not skip_long:
            raise DataError(f"{problem}: lower --max-tokens, or leave them out with --skip-long")
        STDERR.print(f"left out: {problem}", markup=False, soft_wrap=True)
    by = f"{checkpoint_name(model)}, at most {max_tokens} tokens"
    fitting = [prompt.ids for prompt in prompts if len(prompt.ids) <= longest]
    missing = core.unanswered(fitting, out, by)
    if not missing:
        return 0
    cache = CacheConfig()
    tokens = core.pool_tokens(missing, max_tokens, concurrency, cache.page_size)
    config = EngineConfig(model=model, cache=cache.model_copy(update={"tokens": tokens}))
    engine = build_engine(config, name="distill", progress=progress, plans=False).engine
    try:
        meter = Meter(progress, fitting, missing)
        eos_ids = ends_first(info.tokenizer, info.eos_ids)
        return core.distill(engine, missing, max_tokens, eos_ids, out, meter.tick, concurrency=concurrency, by=by)
    finally:
        with suppress(KeyboardInterrupt):  # impatience must not leave a thread behind
            engine.stop()


def checkpoint_name(model: ModelConfig) -> str:
    """Who answers, in the words of a line of answers."""
    return model.checkpoint if model.adapter is None else f"{model.checkpoint} with {Path(model.adapter).name}"


class Meter:
    """Shows prompts done, tokens per second and the time left; what was answered before counts as done, not as pace."""

    def __init__(self, progress: Display, prompts: Sequence[TokenIds], missing: Sequence[TokenIds]) -> None:
        self._progress = progress
        self._before = len(set(prompts)) - len(missing)
        self._missing = len(missing)
        self._answers = self._tokens = 0
        self._began = time.monotonic()
        progress.stage("answering", self._before + self._missing)
        progress.advance(self._before)

    def tick(self, tokens: int) -> None:
        """One more answer, of so many tokens."""
        self._answers += 1
        self._tokens += tokens
        seconds = time.monotonic() - self._began
        left = seconds / self._answers * (self._missing - self._answers)
        done = f"{self._before + self._answers} of {self._before + self._missing} prompts"
        self._progress.advance(1)
        self._progress.note(f"{done}  {self._tokens / seconds:.0f} tokens/s  {in_words(left)} left")
