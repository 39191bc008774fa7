import json
from pathlib import Path

import pytest

from prove_core.training.metrics import FILE
from prove_core.training.plot import Line, plot, read_metrics


def line(step: int, prefix: float | None, places: int = 3) -> dict[str, object]:
    return {
        "step": step,
        "answer_tokens": step * 10,
        "loss": 3 / step,
        "nll": [1.0] * places,
        "match": [0.5] * places,
        "prefix": prefix,
    }


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []
    whole = [line(1, None), line(2, 1.5)]
    text = "".join(json.dumps(each) + "\n" for each in whole)
    (tmp_path / FILE).write_text(text + '{"step": 3, "los')
    assert read_metrics(tmp_path) == whole


@pytest.mark.parametrize(
    "lines",
    [[], [line(1, None, 1), line(2, None, 1)], [line(1, None), line(2, 1.5), line(3, 2.0)]],
    ids=["none", "ar", "block"],
)
def test_a_picture_of_any_run(tmp_path: Path, lines: list[Line]) -> None:
    plot(lines, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
