"""The `prove` command."""

import typer

from prove_core.openmp import wait_briefly

wait_briefly()

from services.cli import bench, distill, generate, models, serve, train  # noqa: E402 - torch comes with them

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
