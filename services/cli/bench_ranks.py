"""`prove bench ranks`."""

from pathlib import Path
from typing import Annotated

import typer

from services.cli.errors import one_line_errors
from services.cli.options import Dtype


@one_line_errors
def ranks(
    json: Annotated[Path | None, typer.Option("--json", help="Write the report here.")] = None,
    size: Annotated[int, typer.Option(min=2, max=64, help="Ranks.")] = 2,
    checkpoint: Annotated[str, typer.Option(help="Model to measure.")] = "default-proposer",
    dtype: Dtype = "bfloat16",
    context: Annotated[int, typer.Option(min=1, help="Tokens of KV before each pass.")] = 256,
    repeats: Annotated[int, typer.Option(min=1)] = 21,
) -> None:
    """Passes of several ranks over gloo against one process on the same cores."""
    from prove_core.config import ModelConfig  # noqa: PLC0415  torch is slow to import
    from services.benchmarks.ranks import run  # noqa: PLC0415

    report = run(ModelConfig(checkpoint=checkpoint, dtype=dtype), size, context, repeats)
    for name, value in (report.figures | report.ratios).items():
        typer.echo(f"{name:32} {value:9.2f}")
    if json:
        report.write(json)
