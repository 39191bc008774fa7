"""The `prove` command."""

import os

import typer

# Before torch loads OpenMP: two engines share these cores, and threads that spin while waiting starve the other's.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from services.cli import bench, distill, generate, models, serve, train

app = typer.Typer(
    name="prove",
    help="Proposer-Verifier block decoding: serve it, try it, measure it, train it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("serve")(serve.serve)
app.command("generate")(generate.generate)
app.command("models")(models.models)
app.command("distill")(distill.distill)
app.add_typer(bench.app, name="bench")
app.add_typer(train.app, name="train")

if __name__ == "__main__":
    app()
