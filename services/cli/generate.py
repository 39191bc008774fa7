"""`prove generate`: one completion in this process, streamed to the terminal."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from prove_core.config import CacheConfig, EngineConfig
from prove_core.decoding.acceptance import check_gate
from prove_core.decoding.sampling import check_samples
from prove_core.types import DecodingParams, Gate, Mode
from services.cli.errors import STDERR, one_line_errors
from services.config.settings import ModelSettings, Settings, load_settings

if TYPE_CHECKING:
    from services.api.sampling import SamplingOptions

Config = Annotated[Path | None, typer.Option(help="YAML configuration; default: the built-in pair on this machine.")]


@one_line_errors
def generate(
    prompt: Annotated[str, typer.Argument(help="The user's message.")],
    mode: Annotated[Mode | None, typer.Option(help="How to decode.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Most tokens to generate.")] = 256,
    block_size: Annotated[int | None, typer.Option(min=1, max=64, help="Tokens per proposed block.")] = None,
    theta: Annotated[float | None, typer.Option(min=0, max=1, help="Gate threshold of mode prove.")] = None,
    gate: Annotated[Gate | None, typer.Option(help="Gate of mode prove.")] = None,
    tau: Annotated[float | None, typer.Option(min=0, max=1, help="Confidence threshold of mode mars.")] = None,
    draft_length: Annotated[int | None, typer.Option(min=1, max=32, help="Drafts of mode speculative.")] = None,
    fused_rows: Annotated[int | None, typer.Option(min=1, max=128, help="Rows of a pass of mode fused.")] = None,
    overlap_rows: Annotated[
        int | None, typer.Option(min=0, max=96, help="Rows of mode prove's proposer while the verifier reads.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Above 0: tokens are drawn, up to 2. Default: 0.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest tokens with this probability.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from this many of the likeliest tokens.")] = None,
    seed: Annotated[int | None, typer.Option(help="The same seed draws the same tokens.")] = None,
    config: Config = None,
    quiet: Annotated[bool, typer.Option(help="Print the text alone.")] = False,
) -> None:
    """Generate in this process, without Ray, and show what decoding did."""
    settings = load_settings(config) if config else Settings()
    chosen = {
        "mode": mode,
        "block_size": block_size,
        "theta": theta,
        "gate": gate,
        "tau": tau,
        "draft_length": draft_length,
        "fused_rows": fused_rows,
        "overlap_rows": overlap_rows,
    }
    given: dict[str, Any] = {key: value for key, value in chosen.items() if value is not None}
    params = check_gate(replace(settings.params(), **given))
    from services.api.sampling import checked_sampling  # noqa: PLC0415  transformers come with it

    sampling = checked_sampling({"temperature": temperature, "top_p": top_p, "top_k": top_k, "seed": seed})
    check_samples(params, sampling.sampling(0))
    _run(settings, params, sampling, prompt, max_tokens, quiet)


def _run(
    settings: Settings, params: DecodingParams, sampling: "SamplingOptions", prompt: str, max_tokens: int, quiet: bool
) -> None:
    from services.cli.local import LocalPair  # noqa: PLC0415  torch is slow to import
    from services.cli.progress import reporting  # noqa: PLC0415

    with reporting(enabled=not quiet) as progress:
        pair = LocalPair.load(_engine_configs(settings, params), progress, plans=params.mode is Mode.AUTO)
    try:
        began = time.perf_counter()
        run = pair.chat(prompt, params, max_tokens, sampling)
        _stream(run.text)
        if not quiet:
            STDERR.print(run.summary(time.perf_counter() - began))
    finally:
        pair.stop()


def _stream(pieces: Iterator[str]) -> None:
    for piece in pieces:
        typer.echo(piece, nl=False)
    typer.echo()


def _engine_configs(settings: Settings, params: DecodingParams) -> tuple[EngineConfig, EngineConfig | None]:
    """The proposer's engine, and the verifier's where the mode needs it, as one process runs them."""
    from prove_core.decoding.cycle import TWO_MODEL_MODES  # noqa: PLC0415
    from prove_core.errors import RequestError  # noqa: PLC0415

    if params.mode not in TWO_MODEL_MODES:
        return _alone(settings.proposer), None
    if settings.verifier is None:
        raise RequestError(f"mode {params.mode.value} needs a verifier and the configuration has none", "mode")
    return _alone(settings.proposer), _alone(settings.verifier)


def _alone(role: ModelSettings) -> EngineConfig:
    """For one completion in one process: without ranks, and with a KV pool of ordinary size for one of size `auto`."""
    if role.tensor_parallel > 1:
        STDERR.print(f"in this process alone: tensor_parallel {role.tensor_parallel} is left out", style="dim")
    cache = role.engine.cache
    tokens = CacheConfig().tokens if cache.tokens == "auto" else cache.tokens
    return role.engine.model_copy(update={"cache": cache.model_copy(update={"tokens": tokens})})
