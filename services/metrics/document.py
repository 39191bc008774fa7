"""The table of all metrics in docs/metrics.md: `python -m services.metrics.document` writes it anew."""

from pathlib import Path

from services.metrics.catalogue import CATALOGUE
from services.metrics.metric import Metric

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
BEGIN = "<!-- table: written by services.metrics.document -->\n"
END = "<!-- end of table -->\n"


def table() -> str:
    """The metrics as Markdown, one a line."""
    head = "| metric | type | from | labels | meaning |\n|---|---|---|---|---|\n"
    return head + "".join(map(_row, CATALOGUE))


def filled(page: str) -> str:
    """`page` with the table of today between its marks."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END)[1]}"


def _row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    parts = ", ".join(part.value for part in metric.parts)
    return f"| `{metric.name}` | {metric.kind.value} | {parts} | {labels} | {metric.help} |\n"


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
