"""Reports as rows of tables, for the terminal and for charts."""

from dataclasses import dataclass

from rich.table import Table

from services.benchmarks.mode_figures import AR
from services.benchmarks.report import Report


@dataclass(frozen=True, slots=True)
class PassRow:
    """A pass of `bench engine`: milliseconds of all of it, of its matrix products alone, and of its floor."""

    name: str
    milliseconds: float
    products: float
    floor: float
    over_ar: float


@dataclass(frozen=True, slots=True)
class ModeRow:
    """A way of decoding of `bench modes`. What isn't known of it is None."""

    name: str
    concurrency: int
    rate: float
    over_ar: float
    tokens_per_pass: float | None
    ms_per_pass: float | None
    different: float | None
    beyond_ties: float | None


def pass_rows(report: Report) -> list[PassRow]:
    """Of a report of `bench engine`, in its order."""
    figures, end = report.figures, "_pass_ms"
    names = [key.removesuffix(end) for key in figures if key.endswith(end)]
    return [
        PassRow(
            name,
            figures[f"{name}_pass_ms"],
            figures[f"{name}_products_ms"],
            figures[f"{name}_floor_ms"],
            1.0 if name == AR else report.ratios[f"{name}_over_ar"],
        )
        for name in names
    ]


def mode_rows(report: Report) -> list[ModeRow]:
    """Of a report of `bench modes`, in its order."""
    figures, end = report.figures, "_tokens_per_second"
    starts = [key.removesuffix(end) for key in figures if key.endswith(end)]
    rows = []
    for start in starts:
        name, _, count = start.rpartition("_c")
        rows.append(
            ModeRow(
                name,
                int(count),
                figures[start + end],
                1.0 if name == AR else report.ratios[f"{name}_vs_ar_c{count}"],
                figures.get(f"{start}_tokens_per_pass"),
                figures.get(f"{start}_ms_per_pass"),
                figures.get(f"{start}_different"),
                figures.get(f"{start}_different_beyond_near_ties"),
            )
        )
    return rows


def pass_table(rows: list[PassRow]) -> Table:
    """Milliseconds, and ratios to the floor and to AR. `rest` is what a pass takes beyond its products."""
    table = _table("pass", "ms", "products", "rest", "floor", "over floor", "over ar")
    for row in rows:
        numbers = (row.milliseconds, row.products, row.milliseconds - row.products, row.floor)
        ratios = (row.milliseconds / row.floor, row.over_ar)
        table.add_row(row.name, *(f"{value:.1f}" for value in numbers), *(f"{value:.2f}" for value in ratios))
    return table


def mode_table(rows: list[ModeRow]) -> Table:
    """Rates, and how many completions differ from those of `ar` (in brackets: not by a near-tie)."""
    table = _table("setting", "in flight", "tokens/s", "over ar", "tokens/pass", "ms/pass", "different")
    for row in rows:
        different = "" if row.different is None else f"{row.different:.0f} ({row.beyond_ties:.0f})"
        passes = ["" if value is None else f"{value:.2f}" for value in (row.tokens_per_pass, row.ms_per_pass)]
        table.add_row(row.name, str(row.concurrency), f"{row.rate:.1f}", f"{row.over_ar:.2f}", *passes, different)
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
