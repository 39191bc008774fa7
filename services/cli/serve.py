"""`prove serve`: the whole application on this machine, or on the cluster that RAY_ADDRESS names."""

import signal
import threading
from pathlib import Path
from typing import Annotated

import typer

from services.cli.errors import STDERR, one_line_errors
from services.settings import Settings, load_settings

CURL = """\
curl -N {url}/v1/chat/completions -H 'Content-Type: application/json' -d '{{
  "model": "{model}", "stream": true, "max_tokens": 64,
  "messages": [{{"role": "user", "content": "Why is the sky blue?"}}],
  "decoding": {{"mode": "lossless"}}}}'"""


@one_line_errors
def serve(
    config: Annotated[Path | None, typer.Argument(help="YAML configuration; default: the built-in pair.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Overrides the configuration; 0: any.")] = None,
) -> None:
    """Serve the OpenAI-compatible API until interrupted."""
    settings = load_settings(config) if config else Settings()
    if port is not None:
        settings = settings.model_copy(update={"port": port})
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    _serve(settings, stop)


def _serve(settings: Settings, stop: threading.Event) -> None:
    from services.cli.progress import reporting  # noqa: PLC0415  rich and ray are slow to import
    from services.launch import launch  # noqa: PLC0415

    with reporting(enabled=True) as progress:
        running = launch(settings, progress)
    with running:
        STDERR.print(f"\n[bold]{running.url}[/bold] serves [bold]{settings.served_name}[/bold]. Try:\n")
        typer.echo(CURL.format(url=running.url, model=settings.served_name))
        STDERR.print("\nCtrl-C stops it.", style="dim")
        while not stop.wait(1.0):
            pass
        STDERR.print("stopping ...", style="dim")
