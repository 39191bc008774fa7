"""Options that several commands share."""

from typing import Annotated, Literal

import typer

Dtype = Annotated[Literal["float32", "bfloat16", "float16"], typer.Option(help="Of the weights.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")]


def parse_layers(text: str | None) -> int | tuple[int, ...] | None:
    """A number of leading layers, or the ones listed. Raises typer.BadParameter for anything else."""
    if text is None:
        return None
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is neither a number of layers nor a list like 0,1,2,29") from error
    return numbers[0] if len(numbers) == 1 and "," not in text else numbers


LAYERS_HELP = "Keep the first N decoder layers, or those listed: 0,1,2,29."
