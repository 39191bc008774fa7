"""`prove bench ramp`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.errors import STDERR, one_line_errors
from services.cli.options import Dtype


@one_line_errors
def ramp(
    json: Annotated[Path | None, typer.Option("--json", help="Write the report here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw a chart here (PNG, PDF, SVG).")] = None,
    quick: Annotated[bool, typer.Option(help="Two or three minutes instead of eight.")] = False,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of each answer.")] = None,
    mode: Annotated[str, typer.Option(help="A mode of two models.")] = "prove",
    most_verifiers: Annotated[int, typer.Option(min=2, help="Replicas at most.")] = 3,
    target_busy: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of time in passes that asks for no more of them.")
    ] = 0.3,
    checkpoint: Annotated[str, typer.Option(help="Proposer.")] = "default-proposer",
    verifier_checkpoint: Annotated[str, typer.Option(help="Verifier.")] = "default-verifier",
    dtype: Dtype = "bfloat16",
) -> None:
    """Load from 1 to 32 streams and back to none: verifiers must come and go with it, and no stream break."""
    from services.benchmarks.charts import check_outputs, plot_ramp  # noqa: PLC0415  torch and ray are slow to import
    from services.benchmarks.ramp import run  # noqa: PLC0415
    from services.benchmarks.ramp_plan import FULL, QUICK, ramp_settings  # noqa: PLC0415

    check_outputs(json, plot)
    proposer, verifier = (_engine(name, dtype) for name in (checkpoint, verifier_checkpoint))
    plan = QUICK if quick else FULL
    plan = plan if max_tokens is None else replace(plan, max_tokens=max_tokens)
    scaling = {
        "min": 1,
        "max": most_verifiers,
        "target_busy": target_busy,
        "upscale_delay_s": 2,
        "downscale_delay_s": 10 if quick else 30,
    }
    report = run(ramp_settings(proposer, verifier, scaling), plan, mode, STDERR.print)
    for name, value in report.figures.items():
        typer.echo(f"{name:36} {value:9.2f}")
    if plot:
        plot_ramp(report.samples, plot)
    if json:
        report.write(json)


def _engine(checkpoint: str, dtype: str) -> dict[str, Any]:
    return {"model": {"checkpoint": checkpoint, "dtype": dtype}}
