"""`prove bench`: measurements, each written as JSON."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from services.cli import bench_faults, bench_ramp, bench_ranks, bench_speed
from services.cli.errors import STDERR, one_line_errors
from services.cli.options import LAYERS_HELP, Dtype, parse_layers

if TYPE_CHECKING:
    from services.benchmarks.report import Report

app = typer.Typer(help="Measure; every benchmark writes JSON with --json.", no_args_is_help=True)
app.command("engine")(bench_speed.engine)
app.command("modes")(bench_speed.modes)
app.command("ramp")(bench_ramp.ramp)
app.command("ranks")(bench_ranks.ranks)
app.command("chaos")(bench_faults.chaos)

Json = Annotated[Path | None, typer.Option("--json", help="Write the report here.")]


def _finish(report: "Report", line: str, json: Path | None) -> None:
    """Print the figures, each by the format `line`, and write the report if asked to."""
    for name, value in (report.figures | report.ratios).items():
        typer.echo(line.format(name=name, value=value))
    if json:
        report.write(json)


@app.command()
@one_line_errors
def overhead(
    json: Json = None,
    cycles: Annotated[int, typer.Option(min=10, help="Cycles per measurement.")] = 300,
    null_only: Annotated[bool, typer.Option(help="Leave out the runs with real models.")] = False,
) -> None:
    """What a cycle costs beyond its forward passes, in one replica and through two."""
    from services.benchmarks.overhead import run  # noqa: PLC0415  torch and ray are slow to import

    report = run(cycles, with_models=not null_only, say=STDERR.print)
    _finish(report, "{name:28} {value:8.3f}", json)


@app.command()
@one_line_errors
def metrics(
    json: Json = None,
    repeats: Annotated[int, typer.Option(min=2, help="Completions with metrics, and as many without.")] = 40,
    cycles: Annotated[int, typer.Option(min=10, help="About so many per completion.")] = 100,
    null_only: Annotated[bool, typer.Option(help="Leave out the runs with real models.")] = False,
) -> None:
    """What metrics cost a cycle."""
    from services.benchmarks.metrics_cost import run  # noqa: PLC0415  torch is slow to import

    report = run(repeats, cycles, with_models=not null_only, say=STDERR.print)
    _finish(report, "{name:28} {value:10.4f}", json)


@app.command()
@one_line_errors
def overlap(
    data: Annotated[Path, typer.Option(help="JSONL with `question` or `prompt`.")],
    json: Json = None,
    limit: Annotated[int, typer.Option(min=1, help="Prompts to use.")] = 6,
    max_tokens: Annotated[int, typer.Option(min=8, help="Of each answer.")] = 96,
    repeats: Annotated[int, typer.Option(min=1)] = 3,
    theta: Annotated[float, typer.Option(min=0, max=1, help="Threshold of the gate.")] = 0.01,
    block_size: Annotated[int, typer.Option(min=2, max=64, help="Tokens proposed per cycle.")] = 8,
    overlap_rows: Annotated[int, typer.Option(min=1, max=96, help="Rows run while the verifier reads.")] = 24,
    checkpoint: Annotated[str, typer.Option(help="Proposer.")] = "default-proposer",
    verifier_checkpoint: Annotated[str, typer.Option(help="Verifier.")] = "default-verifier",
    dtype: Dtype = "bfloat16",
    deterministic: Annotated[bool, typer.Option(help="Make rows independent of their pass: no near-ties.")] = False,
) -> None:
    """Mode prove with both models at work at once, on a core each, against one after the other."""
    from prove_core.config import ModelConfig  # noqa: PLC0415  torch and ray are slow to import
    from prove_core.types import DecodingParams, Mode  # noqa: PLC0415
    from services.benchmarks.overlap import run  # noqa: PLC0415

    proposer = ModelConfig(checkpoint=checkpoint, dtype=dtype, deterministic=deterministic)
    verifier = proposer.model_copy(update={"checkpoint": verifier_checkpoint})
    params = DecodingParams(Mode.PROVE, theta=theta, block_size=block_size, overlap_rows=overlap_rows)
    report = run(proposer, verifier, data, params, limit=limit, max_tokens=max_tokens, repeats=repeats)
    _finish(report, "{name:34} {value:8.3f}", json)


@app.command()
@one_line_errors
def exactness(
    data: Annotated[Path, typer.Option(help="JSONL with `question` or `prompt`.")],
    json: Json = None,
    limit: Annotated[int, typer.Option(min=1, help="Prompts to use.")] = 50,
    max_tokens: Annotated[int, typer.Option(min=1)] = 128,
    block_size: Annotated[list[int] | None, typer.Option(min=1, max=64, help="Repeat for several.")] = None,
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option()] = "float32",
    deterministic: Annotated[bool, typer.Option(help="Make rows independent of their pass.")] = False,
    checkpoint: Annotated[str, typer.Option(help="Proposer to test.")] = "default-proposer",
) -> None:
    """Compare the ids of `lossless` with those of `ar`, prompt by prompt."""
    from prove_core.config import ModelConfig  # noqa: PLC0415
    from services.benchmarks.exactness import run  # noqa: PLC0415

    model = ModelConfig(checkpoint=checkpoint, dtype=dtype, deterministic=deterministic)
    report = run(model, data, limit, max_tokens, block_size or [1, 4, 8, 16])
    _finish(report, "{name:28} {value:8.0f}", json)


@app.command()
@one_line_errors
def prefix(
    data: Annotated[Path, typer.Option(help="JSONL with `question` or `prompt`.")],
    json: Json = None,
    limit: Annotated[int, typer.Option(min=1, help="Prompts to use.")] = 200,
    block_size: Annotated[list[int] | None, typer.Option(min=2, max=64, help="Repeat for several.")] = None,
    max_tokens: Annotated[int, typer.Option(min=2, help="Of each answer.")] = 160,
    stride: Annotated[int, typer.Option(min=1, help="Tokens of an answer between two blocks.")] = 4,
    checkpoint: Annotated[str, typer.Option(help="Proposer to measure, or an adapter's base.")] = "default-proposer",
    adapter: Annotated[Path | None, typer.Option(help="Block adapter on it.")] = None,
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option()] = "bfloat16",
) -> None:
    """How many leading tokens of a proposed block equal the proposer's own greedy continuation (L)."""
    from prove_core.config import ModelConfig  # noqa: PLC0415
    from services.benchmarks.prefix import run  # noqa: PLC0415

    model = ModelConfig(checkpoint=checkpoint, adapter=None if adapter is None else str(adapter), dtype=dtype)
    report = run(model, data, limit, block_size or [8], max_tokens, stride)
    for name, value in report.figures.items():
        typer.echo(f"{name:28} {value:8.3f}")
    for name, curve in report.samples.items():
        typer.echo(f"{name:28} {' '.join(f'{value:.2f}' for value in curve)}")
    if json:
        report.write(json)


@app.command()
@one_line_errors
def quality(
    data: Annotated[Path, typer.Option(help="JSONL with `question` or `prompt`, and perhaps a human `answer`.")],
    json: Json = None,
    limit: Annotated[int, typer.Option(min=1, help="Prompts to use.")] = 50,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of each answer.")] = 256,
    reference: Annotated[str, typer.Option(help="Checkpoint to compare with.")] = "smollm2-135m-instruct",
    reference_adapter: Annotated[Path | None, typer.Option(help="Adapter on the reference.")] = None,
    reference_layers: Annotated[str | None, typer.Option(help=LAYERS_HELP)] = None,
    candidate: Annotated[str, typer.Option(help="Checkpoint to judge.")] = "default-proposer",
    candidate_adapter: Annotated[Path | None, typer.Option(help="Adapter on the candidate.")] = None,
    candidate_layers: Annotated[str | None, typer.Option(help=LAYERS_HELP)] = None,
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option()] = "bfloat16",
    deterministic: Annotated[
        bool, typer.Option(help="Make rows independent of their pass: equal models then give equal ids.")
    ] = True,
) -> None:
    """Does a model, such as a base with an adapter, keep the AR quality of another?"""
    from prove_core.config import ModelConfig  # noqa: PLC0415
    from services.benchmarks.quality import run  # noqa: PLC0415

    def model(checkpoint: str, adapter: Path | None, layers: str | None) -> ModelConfig:
        folder = None if adapter is None else str(adapter)
        return ModelConfig(
            checkpoint=checkpoint, adapter=folder, layers=parse_layers(layers), dtype=dtype, deterministic=deterministic
        )

    report = run(
        model(reference, reference_adapter, reference_layers),
        model(candidate, candidate_adapter, candidate_layers),
        data,
        limit,
        max_tokens,
    )
    _finish(report, "{name:36} {value:9.4f}", json)


@app.command()
@one_line_errors
def gates(
    data: Annotated[Path, typer.Option(help="JSONL with `question` or `prompt`.")],
    json: Json = None,
    limit: Annotated[int, typer.Option(min=2, help="Prompts to use.")] = 50,
    block_size: Annotated[int, typer.Option(min=2, max=64, help="Tokens per proposed block.")] = 8,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of each answer.")] = 128,
    stride: Annotated[int, typer.Option(min=1, help="Record a block at every so many tokens of an answer.")] = 4,
    theta: Annotated[
        list[float] | None, typer.Option(min=0, max=1, help="Threshold of mode prove; repeat for several.")
    ] = None,
    tau: Annotated[float, typer.Option(min=0, max=1, help="Threshold of mode mars.")] = 0.9,
    record: Annotated[Path | None, typer.Option(help="Write the recorded blocks here, as JSONL.")] = None,
    gate_weights: Annotated[
        Path | None, typer.Option(help="Fit of the logistic gate; default: fitted on the other half of the prompts.")
    ] = None,
    checkpoint: Annotated[str, typer.Option(help="Proposer, or its adapter's base.")] = "default-proposer",
    adapter: Annotated[Path | None, typer.Option(help="Block adapter on the proposer.")] = None,
    verifier_checkpoint: Annotated[str, typer.Option(help="Verifier.")] = "default-verifier",
    verifier_adapter: Annotated[Path | None, typer.Option(help="Adapter on the verifier.")] = None,
    verifier_layers: Annotated[str | None, typer.Option(help=LAYERS_HELP)] = None,
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option()] = "bfloat16",
    deterministic: Annotated[
        bool, typer.Option(help="Make rows independent of their pass: no non-AR token is then a matter of rounding.")
    ] = True,
) -> None:
    """What a verifier is worth: how well gates tell AR tokens from others, and what they commit at what error."""
    from prove_core.config import ModelConfig  # noqa: PLC0415
    from prove_core.decoding.gate_file import read_gate  # noqa: PLC0415
    from services.benchmarks.gates import Plan, run  # noqa: PLC0415

    weights = None if gate_weights is None else read_gate(gate_weights)
    plan = Plan(block_size, max_tokens, stride, tuple(theta or [0.01, 0.05, 0.1]), tau, weights)
    proposer, verifier = (
        ModelConfig(
            checkpoint=name,
            adapter=None if folder is None else str(folder),
            layers=layers,
            dtype=dtype,
            deterministic=deterministic,
        )
        for name, folder, layers in (
            (checkpoint, adapter, None),
            (verifier_checkpoint, verifier_adapter, parse_layers(verifier_layers)),
        )
    )
    report = run(proposer, verifier, data, limit, plan, record)
    _finish(report, "{name:56} {value:9.4f}", json)
