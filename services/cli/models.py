"""`prove models`: the checkpoints that come with the project."""

from rich.console import Console
from rich.table import Table

from services.cli.errors import one_line_errors


@one_line_errors
def models() -> None:
    """List the built-in checkpoints. Any local folder or hub id of a decoder-only checkpoint works as well."""
    from prove_core.model.builtin import list_builtins  # noqa: PLC0415  torch is slow to import

    table = Table(box=None, pad_edge=False)
    for column in ("name", "description", "license", "size", "cached"):
        table.add_column(column, no_wrap=column != "description")
    for status in list_builtins():
        where = str(status.path) if status.cached else "no (fetched on first use)"
        table.add_row(status.name, status.description, status.license, f"{status.size / 1e6:.0f} MB", where)
    Console().print(table)
