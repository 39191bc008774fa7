"""`prove bench engine` and `prove bench modes`: how fast, against the machine, against AR and against transformers."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from services.cli.errors import one_line_errors
from services.cli.options import Dtype

Json = Annotated[Path | None, typer.Option("--json", help="Write the report here.")]
Plot = Annotated[Path | None, typer.Option(help="Draw a chart here (PNG, PDF, SVG).")]

_ENGINE_SUMMARY = (
    "bandwidth_gb_per_s",
    "peak_gflops",
    "weights_mb",
    "placeholder_extra_ms",
    "ar_tokens_per_second",
    "transformers_tokens_per_second",
    "ar_over_bandwidth_floor",
    "window17_over_ar",
    "ar_vs_transformers",
)


@one_line_errors
def engine(
    json: Json = None,
    plot: Plot = None,
    checkpoint: Annotated[str, typer.Option(help="Model to measure.")] = "default-proposer",
    dtype: Dtype = "bfloat16",
    context: Annotated[int, typer.Option(min=1, help="Tokens of KV before each pass.")] = 256,
    tokens: Annotated[int, typer.Option(min=1, help="To decode, by this engine and by transformers.")] = 64,
    repeats: Annotated[int, typer.Option(min=1)] = 9,
) -> None:
    """Forward passes against this machine's memory and arithmetic, and AR decoding against transformers."""
    from prove_core.config import ModelConfig  # noqa: PLC0415  torch is slow to import
    from services.benchmarks.charts import check_outputs, plot_passes  # noqa: PLC0415
    from services.benchmarks.engine import run  # noqa: PLC0415
    from services.benchmarks.tables import pass_rows, pass_table  # noqa: PLC0415

    check_outputs(json, plot)
    report = run(ModelConfig(checkpoint=checkpoint, dtype=dtype), context, tokens, repeats)
    rows = pass_rows(report)
    Console().print(pass_table(rows))
    everything = report.figures | report.ratios
    _echo({name: everything[name] for name in _ENGINE_SUMMARY if name in everything})
    if plot:
        plot_passes(rows, plot)
    if json:
        report.write(json)


@one_line_errors
def modes(
    data: Annotated[Path, typer.Option(help="JSONL with `question` or `prompt`.")],
    json: Json = None,
    plot: Plot = None,
    quick: Annotated[bool, typer.Option(help="Less of everything: some minutes on two cores.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="Prompts to use.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of each answer.")] = None,
    repeats: Annotated[int | None, typer.Option(min=1)] = None,
    concurrency: Annotated[
        list[int] | None, typer.Option(min=1, max=256, help="Requests in flight; repeat for several.")
    ] = None,
    checkpoint: Annotated[str, typer.Option(help="Proposer.")] = "default-proposer",
    verifier_checkpoint: Annotated[str, typer.Option(help="Verifier of the modes of two models.")] = "default-verifier",
    dtype: Dtype = "bfloat16",
    deterministic: Annotated[bool, typer.Option(help="Make rows independent of their pass: no near-ties.")] = False,
) -> None:
    """Tokens per second in every mode, one and many requests in flight, against AR and transformers in the same run."""
    from prove_core.config import ModelConfig  # noqa: PLC0415
    from services.benchmarks.charts import check_outputs, plot_modes  # noqa: PLC0415
    from services.benchmarks.mode_settings import FULL, QUICK  # noqa: PLC0415
    from services.benchmarks.modes import run  # noqa: PLC0415
    from services.benchmarks.tables import mode_rows, mode_table  # noqa: PLC0415

    check_outputs(json, plot)
    chosen = {
        "limit": limit,
        "max_tokens": max_tokens,
        "repeats": repeats,
        "concurrency": None if concurrency is None else tuple(sorted(set(concurrency))),
    }
    given: dict[str, Any] = {key: value for key, value in chosen.items() if value is not None}
    proposer = ModelConfig(checkpoint=checkpoint, dtype=dtype, deterministic=deterministic)
    verifier = proposer.model_copy(update={"checkpoint": verifier_checkpoint})
    report = run(proposer, verifier, data, replace(QUICK if quick else FULL, **given))
    rows = mode_rows(report)
    Console().print(mode_table(rows))
    _echo({name: ratio for name, ratio in report.ratios.items() if "_vs_ar_c" not in name})
    if plot:
        plot_modes(rows, plot)
    if json:
        report.write(json)


def _echo(figures: dict[str, float]) -> None:
    for name, value in figures.items():
        typer.echo(f"{name:32} {value:9.3f}")
