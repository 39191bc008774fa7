"""`prove bench chaos`."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from services.cli.errors import STDERR, one_line_errors
from services.cli.options import Dtype


@one_line_errors
def chaos(
    json: Annotated[Path | None, typer.Option("--json", help="Write the report here.")] = None,
    quick: Annotated[bool, typer.Option(help="16 streams instead of 100.")] = False,
    streams: Annotated[int | None, typer.Option(min=1, help="Requests at once.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of each answer.")] = None,
    proposers: Annotated[int, typer.Option(min=1, help="Replicas.")] = 1,
    verifiers: Annotated[int, typer.Option(min=1, help="Replicas.")] = 2,
    checkpoint: Annotated[str, typer.Option(help="Proposer.")] = "default-proposer",
    verifier_checkpoint: Annotated[str, typer.Option(help="Verifier.")] = "default-verifier",
    dtype: Dtype = "bfloat16",
) -> None:
    """Kill and suspend replicas under running streams: every text must equal that of an undisturbed run."""
    from services.benchmarks.chaos import run  # noqa: PLC0415  ray is slow to import
    from services.benchmarks.chaos_plan import FULL, QUICK, chaos_settings  # noqa: PLC0415

    chosen = {"streams": streams, "max_tokens": max_tokens}
    given: dict[str, Any] = {key: value for key, value in chosen.items() if value is not None}
    model = {"dtype": dtype, "deterministic": True}
    proposer, verifier = ({"model": {"checkpoint": name, **model}} for name in (checkpoint, verifier_checkpoint))
    settings = chaos_settings(proposer, verifier, (proposers, verifiers))
    report = run(settings, replace(QUICK if quick else FULL, **given), STDERR.print)
    for name, value in report.figures.items():
        typer.echo(f"{name:44} {value:9.2f}")
    if json:
        report.write(json)
