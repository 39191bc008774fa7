"""`prove train`: proposers, verifiers and gates of one's own."""

from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal

import typer
import yaml

from prove_core.config import ModelConfig
from services.cli.errors import STDERR, one_line_errors
from services.cli.options import LAYERS_HELP, parse_layers
from services.config.yaml_config import SettingsError

app = typer.Typer(help="Train a proposer, a verifier or a gate on answers of `prove distill`.", no_args_is_help=True)

Data = Annotated[list[Path] | None, typer.Option(help="JSONL with a prompt and its `answer` in each line; repeatable.")]
Out = Annotated[Path | None, typer.Option(help="Folder of the run: checkpoints, metrics, the result.")]
Config = Annotated[Path | None, typer.Option(help="YAML with any of the settings; options go over it.")]
Checkpoint = Annotated[str | None, typer.Option(help="Base to train: built-in name, folder or hub id.")]
Placeholder = Annotated[str | None, typer.Option(help="Token that stands for a position to predict.")]
Steps = Annotated[int | None, typer.Option(min=0, help="Optimizer steps of the whole run; 0: export the start.")]
Lr = Annotated[float | None, typer.Option(help="Peak learning rate.")]
Rank = Annotated[int | None, typer.Option(min=1, help="Rank of the LoRA matrices.")]
Batch = Annotated[int | None, typer.Option(min=1, help="Examples per forward pass.")]
Accumulate = Annotated[int | None, typer.Option(min=1, help="Forward passes per step.")]
Seed = Annotated[int | None, typer.Option(help="Of everything random.")]
Dtype = Annotated[Literal["float32", "bfloat16", "float16"] | None, typer.Option(help="Of the base's weights.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda, cuda:1 ...")]
Full = Annotated[bool, typer.Option("--full", help="Train all weights; the result is a checkpoint.")]
NoPlot = Annotated[bool, typer.Option("--no-plot", help="Draw no curve.png at the end (needs matplotlib).")]
PrintConfig = Annotated[bool, typer.Option("--print-config", help="Print all settings as YAML, and train nothing.")]


@app.command()
@one_line_errors
def proposer(
    data: Data = None,
    out: Out = None,
    config: Config = None,
    stage: Annotated[
        Literal["block", "ar"], typer.Option(help="ar: fine-tune on the answers first, if they are not its own.")
    ] = "block",
    checkpoint: Checkpoint = None,
    placeholder: Placeholder = None,
    steps: Steps = None,
    lr: Lr = None,
    rank: Rank = None,
    block_size: Annotated[int | None, typer.Option(min=2, help="Tokens proposed per pass.")] = None,
    batch: Batch = None,
    accumulate: Accumulate = None,
    ungated: Annotated[bool, typer.Option("--ungated", help="Let the adapter act on all rows.")] = False,
    full: Full = False,
    start: Annotated[Path | None, typer.Option(help="Block adapter to go on from, of any rank.")] = None,
    seed: Seed = None,
    dtype: Dtype = None,
    device: Device = None,
    no_plot: NoPlot = False,
    print_config: PrintConfig = False,
) -> None:
    """Teach a checkpoint to propose blocks. Interrupted, the same command goes on where it was."""
    from prove_core.training.config import ProposerTraining  # noqa: PLC0415  torch is slow to import
    from prove_core.training.runs import train_proposer  # noqa: PLC0415
    from services.cli.training import naming, run, serving_yaml, trained_model  # noqa: PLC0415
    from services.config.training_settings import as_yaml, training_settings  # noqa: PLC0415

    common = _common(checkpoint, steps, lr, batch, accumulate, seed, dtype, device)
    block = {
        "adapter.rank": rank,
        "adapter.block_size": block_size,
        "model.placeholder": placeholder,
        "method": _method(ungated=ungated, full=full),
        "warm_start": None if start is None else str(start),
    }
    if stage == "ar":
        if any(value is not None for value in block.values()):
            raise SettingsError("--stage ar trains all weights and no blocks: leave out what is about adapters")
        model = _ar({**common, "method": "full"}, config, data, out, no_plot=no_plot, print_config=print_config)
        if model is not None:
            _say(f"now its blocks:  prove train proposer --checkpoint {quote(model.checkpoint)} --data ... --out ...")
        return
    settings = training_settings(ProposerTraining, config, {**common, **block})
    if print_config:
        typer.echo(as_yaml(settings), nl=False)
        return
    files, folder = _given(data, out)
    result = run(train_proposer, settings, files, folder, with_plot=not no_plot)
    serving = folder / "serve.yaml"
    serving.write_text(serving_yaml(settings, result), encoding="utf-8")
    _say(f"trained: {result}")
    where = f"{naming(trained_model(settings.model, result))} --block-size {settings.adapter.block_size}"
    _say(f"measure it:  prove bench prefix --data PROMPTS.jsonl {where}")
    _say(f'try it:      prove generate --config {quote(str(serving))} "Why is the sky blue?"')
    _say(f"serve it:    prove serve {quote(str(serving))}")


@app.command()
@one_line_errors
def verifier(
    data: Data = None,
    out: Out = None,
    config: Config = None,
    checkpoint: Checkpoint = None,
    layers: Annotated[str | None, typer.Option(help=LAYERS_HELP)] = None,
    pick: Annotated[
        int | None, typer.Option(min=1, help="Keep N layers: those that turn the data's hidden states most.")
    ] = None,
    steps: Steps = None,
    lr: Lr = None,
    rank: Rank = None,
    batch: Batch = None,
    accumulate: Accumulate = None,
    full: Full = False,
    seed: Seed = None,
    dtype: Dtype = None,
    device: Device = None,
    no_plot: NoPlot = False,
    print_config: PrintConfig = False,
) -> None:
    """Teach a cheaper model its proposer's answers. Interrupted, the same command goes on where it was."""
    from services.cli.training import as_data  # noqa: PLC0415  torch is slow to import

    options = {
        **_common(checkpoint, steps, lr, batch, accumulate, seed, dtype, device),
        "rank": rank,
        "model.layers": parse_layers(layers),
        "pick": pick,
        "method": _method(ungated=False, full=full),
    }
    model = _ar(options, config, data, out, no_plot=no_plot, print_config=print_config)
    if model is not None:
        _say("in the configuration of `prove serve`, beside its proposer:")
        typer.echo(yaml.safe_dump({"verifier": {"engine": {"model": as_data(model)}}}, sort_keys=False), nl=False)


@app.command()
@one_line_errors
def gate(
    records: Annotated[list[Path], typer.Option(help="JSONL of `prove bench gates --record`; repeatable.")],
    out: Annotated[Path, typer.Option(help="Gate file to write, for `decoding.gate_weights`.")],
) -> None:
    """Fit the logistic gate of mode `prove` and compare it with the others, on prompts held out."""
    from prove_core.training.gate import train_gate  # noqa: PLC0415

    fit = train_gate(records, out)
    typer.echo(f"{'blocks':12} {fit.blocks:8}\n{'candidates':12} {fit.candidates:8}")
    for name, value in fit.auc.items():
        typer.echo(f"{f'auc {name}':20} {value:.4f}")
    _say(f"use it:  decoding: {{mode: prove, gate: logistic, gate_weights: {out}}} in the configuration")


@app.command()
@one_line_errors
def recall(
    data: Annotated[list[Path], typer.Option(help="JSONL of `prove distill`; repeatable.")],
    adapter: Annotated[Path, typer.Option(help="Adapter folder with a sequential head; its record gets the fit.")],
    checkpoint: Annotated[
        str, typer.Option(help="Its base: built-in name, folder or hub id.")
    ] = "smollm2-135m-instruct",
    limit: Annotated[int, typer.Option(min=1, help="Answers to fit on.")] = 200,
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], typer.Option(help="Of the base's weights.")
    ] = "bfloat16",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")] = "auto",
) -> None:
    """Fit what drafts gain by having followed the same tokens before: names, numbers, phrases of the context."""
    from prove_core.training.recall import train_recall  # noqa: PLC0415  torch is slow to import
    from services.cli.progress import reporting  # noqa: PLC0415

    model = ModelConfig(checkpoint=checkpoint, dtype=dtype, device=device)
    with reporting(enabled=True) as progress:
        fit = train_recall(model, data, adapter, limit=limit, progress=progress)
    typer.echo(f"{'drafts':20} {fit.drafts:8}")
    matches = [(f"match of {length}", value) for length, value in enumerate(fit.recall.totals[1:], start=1)]
    prefixes = [("prefix without", fit.prefix_before), ("prefix with", fit.prefix_after)]
    for name, value in (*matches, ("latest", fit.recall.latest), *prefixes):
        typer.echo(f"{name:20} {value:8.4f}")
    _say(f"written to {adapter / 'prove.json'}")


@app.command()
@one_line_errors
def calibration(
    records: Annotated[list[Path], typer.Option(help="JSONL of `prove bench gates --record`; repeatable.")],
    adapter: Annotated[
        Path, typer.Option(help="Adapter folder whose proposals were recorded; its record gets the fit.")
    ],
) -> None:
    """Fit how likely a proposer's drafts match at a given confidence, which mode `auto` plans by."""
    from prove_core.training.calibration import train_calibration  # noqa: PLC0415

    fit = train_calibration(records, adapter)
    typer.echo(f"{'candidates':12} {fit.candidates:8}")
    for name, value in (
        ("bias", fit.calibration.bias),
        ("slope", fit.calibration.slope),
        ("log loss as they are", fit.loss_before),
        ("log loss calibrated", fit.loss_after),
    ):
        typer.echo(f"{name:20} {value:8.4f}")
    _say(f"written to {adapter / 'prove.json'}")


def _ar(
    options: Mapping[str, Any],
    config: Path | None,
    data: list[Path] | None,
    out: Path | None,
    *,
    no_plot: bool,
    print_config: bool,
) -> ModelConfig | None:
    """AR fine-tuning; answers how to load the result, or None when the settings were only printed."""
    from prove_core.training.config import VerifierTraining  # noqa: PLC0415  torch is slow to import
    from prove_core.training.runs import train_verifier  # noqa: PLC0415
    from services.cli.training import run, trained_model  # noqa: PLC0415
    from services.config.training_settings import as_yaml, training_settings  # noqa: PLC0415

    settings = training_settings(VerifierTraining, config, options)
    if print_config:
        typer.echo(as_yaml(settings), nl=False)
        return None
    files, folder = _given(data, out)
    result = run(train_verifier, settings, files, folder, with_plot=not no_plot)
    _say(f"trained: {result}")
    return trained_model(settings.model, result)


def _method(*, ungated: bool, full: bool) -> str | None:
    if ungated and full:
        raise SettingsError("--ungated and --full exclude each other")
    return "full" if full else "ungated" if ungated else None


def _given(data: list[Path] | None, out: Path | None) -> tuple[list[Path], Path]:
    """What only --print-config can do without."""
    if not data or out is None:
        raise SettingsError("--data and --out are needed to train")
    if out.is_file():
        raise SettingsError(f"--out {out} is a file: name a folder")
    return data, out


def _say(line: str) -> None:
    STDERR.print(line, markup=False, soft_wrap=True)


def _common(
    checkpoint: str | None,
    steps: int | None,
    lr: float | None,
    batch: int | None,
    accumulate: int | None,
    seed: int | None,
    dtype: str | None,
    device: str | None,
) -> dict[str, Any]:
    return {
        "model.checkpoint": checkpoint,
        "model.dtype": dtype,
        "model.device": device,
        "optimizer.steps": steps,
        "optimizer.lr": lr,
        "batch.examples": batch,
        "batch.accumulate": accumulate,
        "seed": seed,
    }
