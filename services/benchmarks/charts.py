"""Reports as pictures. Needs matplotlib (the extra `train`)."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from prove_core.errors import ProveError
from services.benchmarks.tables import ModeRow, PassRow


def check_outputs(report: Path | None, plot: Path | None) -> None:
    """Raise ProveError for what could not be written after a run: before it."""
    if plot is not None and find_spec("matplotlib") is None:
        raise ProveError("plots need matplotlib: pip install 'prove-serve[train]', or leave out --plot")
    for option, path in (("--json", report), ("--plot", plot)):
        if path is not None and not path.parent.is_dir():
            raise ProveError(f"{option} {path}: there is no folder {path.parent}")


def plot_passes(rows: list[PassRow], path: Path) -> None:
    """Milliseconds of each pass, of its matrix products alone, and the floor."""
    from matplotlib.figure import Figure  # noqa: PLC0415  optional

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    places = range(len(rows))
    axes.bar(places, [row.milliseconds for row in rows], label="pass")
    axes.scatter(places, [row.products for row in rows], color="black", marker="_", label="its matrix products alone")
    axes.step(places, [row.floor for row in rows], where="mid", color="tab:red", label="floor of this machine")
    axes.set_xticks(places, [row.name for row in rows], rotation=45, ha="right")
    axes.set_ylabel("ms")
    axes.grid(axis="y", alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def plot_modes(rows: list[ModeRow], path: Path) -> None:
    """Tokens per second with one request in flight, and by their number relative to `ar`."""
    from matplotlib.figure import Figure  # noqa: PLC0415  optional

    figure = Figure(figsize=(11, 4), layout="constrained")
    bars, lines = figure.subplots(1, 2)
    fewest = min(row.concurrency for row in rows)
    alone = [row for row in rows if row.concurrency == fewest]
    bars.barh([row.name for row in alone], [row.rate for row in alone])
    bars.invert_yaxis()
    bars.set_xlabel(f"tokens per second, {fewest} in flight")
    by_name: Mapping[str, list[ModeRow]] = {row.name: [r for r in rows if r.name == row.name] for row in rows}
    for name, points in by_name.items():
        if len(points) > 1:
            lines.plot([p.concurrency for p in points], [p.over_ar for p in points], marker="o", label=name)
            lines.legend(fontsize="small")
    counts = sorted({row.concurrency for row in rows})
    lines.set_xscale("log", base=2)
    lines.set_xticks(counts, [str(count) for count in counts])
    lines.set_xlabel("requests in flight")
    lines.set_ylabel("tokens per second over those of ar")
    for axes in (bars, lines):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def plot_ramp(samples: Mapping[str, list[float]], path: Path) -> None:
    """Streams, replicas, how busy they are, how long calls wait and what comes out, over time."""
    from matplotlib.figure import Figure  # noqa: PLC0415  optional

    figure = Figure(figsize=(9, 8), layout="constrained")
    panels = (
        ("streams", "open streams"),
        ("verifiers", "verifier replicas"),
        ("busy", "busy share of a verifier"),
        ("wait_p90_s", "p90 wait for a pass, s"),
        ("tokens_per_second", "tokens per second"),
    )
    for axes, (name, label) in zip(figure.subplots(len(panels), 1, sharex=True), panels, strict=True):
        axes.step(samples["second"], samples[name], where="post")
        axes.set_ylabel(label, fontsize="small")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    axes.set_xlabel("s")
    figure.savefig(path, dpi=120)
