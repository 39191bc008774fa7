"""How commands fail: an error raised on purpose is one line on stderr, not a traceback."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import typer
from rich.console import Console

from prove_core.errors import ProveError

P = ParamSpec("P")
R = TypeVar("R")

STDERR = Console(stderr=True, highlight=False)


def one_line_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn ProveError into a message and exit code 1."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except ProveError as error:
            STDERR.print("error:", style="bold red", end=" ")
            STDERR.print(str(error), markup=False, soft_wrap=True)
            raise typer.Exit(1) from None

    return wrapped
