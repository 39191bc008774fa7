"""`prove models`: the checkpoints that come with the project."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from services.cli.errors import one_line_errors

if TYPE_CHECKING:
    from prove_core.model.builtin import BuiltinStatus

NARROWEST_DESCRIPTION = 16
UNLIMITED = 10_000


@one_line_errors
def models() -> None:
    """List the built-in checkpoints. Any local folder or hub id of a decoder-only checkpoint works as well.

    Not on a terminal: a line each of name, description, license, bytes and cached path (or nothing), separated by tabs.
    """
    from prove_core.model.builtin import list_builtins  # noqa: PLC0415  torch is slow to import

    console = Console()
    if console.is_terminal:
        show(list_builtins(), console)
    else:
        typer.echo("\n".join(map(tabbed, list_builtins())))


def tabbed(status: "BuiltinStatus") -> str:
    """The full values, for another program."""
    path = str(status.path) if status.cached else ""
    return "\t".join((status.name, status.description, status.license, str(status.size), path))


def show(statuses: Sequence["BuiltinStatus"], console: Console) -> None:
    """A table in which the description folds; the rest is whole, however narrow the terminal."""
    table = Table(box=None, pad_edge=False)
    for column in ("name", "description", "license", "size", "cached"):
        table.add_column(column, no_wrap=column != "description", overflow="fold")
    for status in statuses:
        where = str(status.path) if status.cached else "no (fetched on first use)"
        table.add_row(status.name, status.description, status.license, f"{status.size / 1e6:.0f} MB", where)
    wide = console.options.update(width=UNLIMITED)
    table.columns[1].max_width = NARROWEST_DESCRIPTION
    needed = console.measure(table, options=wide).maximum
    table.columns[1].max_width = None
    console.width = max(console.width, needed)  # rich would cut what does not fit: the terminal wraps it instead
    with console.capture() as drawn:
        console.print(table)
    console.file.write("".join(f"{line.rstrip()}\n" for line in drawn.get().splitlines()))
