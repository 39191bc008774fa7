"""The process behind `prove serve`: `python -m services.cli.server SETTINGS_JSON`, until its stdin is closed."""

import os
import signal
import sys
import threading
import time

import typer

from services.cli.apart import INTERRUPTED
from services.cli.errors import STDERR, one_line_errors
from services.config.settings import Settings

FORCE_S = 8.0  # longest teardown of a start that was interrupted
KEY_HEADER = ' -H "Authorization: Bearer $KEY"'
CURL = """\
curl -N {url}/v1/chat/completions -H 'Content-Type: application/json'{key} -d '{{
  "model": "{model}", "stream": true, "max_tokens": 64,
  "messages": [{{"role": "user", "content": "Why is the sky blue?"}}],
  "decoding": {{"mode": "lossless"}}}}'"""


class Stop:
    """The wish to stop: raises KeyboardInterrupt in the main thread, once, unless `serving`; then it only says so."""

    def __init__(self) -> None:
        self.serving = False
        self.raised = False
        self._wished = threading.Event()

    def watch(self) -> None:
        """Wait for the end of stdin, or a signal, in the background. Call it in the main thread."""
        signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._until_closed, daemon=True).start()

    def wait(self) -> None:
        """Return when the wish has come. From here on it raises nothing."""
        self.serving = True
        signal.signal(signal.SIGTERM, self._interrupt)  # Ray's own handler prints a crash dump
        while not self._wished.wait(1.0):
            pass

    def _until_closed(self) -> None:
        while os.read(0, 1024):
            pass
        requests = " running requests have a few seconds to end; Ctrl-C again stops at once" if self.serving else ""
        STDERR.print(f"stopping ...{requests}", style="dim")
        self._wished.set()
        if not self.serving:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(FORCE_S)
            os._exit(INTERRUPTED)

    def _interrupt(self, *_: object) -> None:
        self._wished.set()
        if not self.serving and not self.raised:
            self.raised = True
            raise KeyboardInterrupt


@one_line_errors
def run(settings_json: str) -> None:
    """Serve the application that the settings describe."""
    settings = Settings.model_validate_json(settings_json)
    stop = Stop()
    try:
        stop.watch()
        _serve(settings, stop)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except Exception:  # what an interrupt becomes inside transformers' lazy imports
        if not stop.raised:
            raise
        raise typer.Exit(INTERRUPTED) from None


def _serve(settings: Settings, stop: Stop) -> None:
    from services.cli.progress import reporting  # noqa: PLC0415  rich and ray are slow to import
    from services.launch import launch  # noqa: PLC0415

    with reporting(enabled=True) as progress:
        running = launch(settings, progress)
    with running:
        STDERR.print(f"\n[bold]{running.url}[/bold] serves [bold]{settings.served_name}[/bold]. Try:\n")
        key = KEY_HEADER if settings.security.guarded else ""
        typer.echo(CURL.format(url=running.url, key=key, model=settings.served_name))
        STDERR.print("\nCtrl-C stops it.", style="dim")
        stop.wait()


if __name__ == "__main__":
    try:
        run(sys.argv[1])
    except typer.Exit as exit:
        sys.exit(exit.exit_code)
