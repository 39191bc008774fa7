"""`prove serve`: the whole application on this machine, or on the cluster that RAY_ADDRESS names."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from services.address import free_port
from services.cli.apart import run_apart
from services.cli.errors import one_line_errors
from services.config.settings import Settings, load_settings


@one_line_errors
def serve(
    config: Annotated[Path | None, typer.Argument(help="YAML configuration; default: the built-in pair.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Overrides the configuration; 0: any.")] = None,
) -> None:
    """Serve the OpenAI-compatible API until interrupted."""
    settings = load_settings(config) if config else Settings()
    if port is not None:
        settings = settings.model_copy(update={"port": port})
    free_port(settings.host, settings.port)
    command = [sys.executable, "-m", "services.cli.server", settings.model_dump_json(exclude_unset=True)]
    raise typer.Exit(run_apart(command))
