"""Options that several commands share."""

from typing import Annotated, Literal

import typer

Dtype = Annotated[Literal["float32", "bfloat16", "float16"], typer.Option(help="Of the weights.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")]
