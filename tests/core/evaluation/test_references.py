from pathlib import Path

import pytest

from prove_core.errors import DataError
from prove_core.evaluation.references import read_references


def test_answers_of_the_first_lines(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"question": "a", "answer": "b\\n#### 4"}\n\n{"prompt": "c"}\n{"prompt": "d", "answer": 3}\n')
    assert read_references(path, 2) == [(1, "b\n#### 4"), (3, None)]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"prompt": "a", "answer": 3}', "line 2.*`answer`"),
        ('{"prompt": "a", "answer": " "}', "line 2.*`answer`"),
        ('{"prompt": "a", "answer": "so #### many"}', "line 2.*no number after ####"),
        ("{", "line 2.*not JSON"),
    ],
)
def test_bad_answers_are_refused_with_the_line(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(f'{{"prompt": "a"}}\n{line}\n')
    with pytest.raises(DataError, match=complaint):
        read_references(path, 10)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*none"):
        read_references(tmp_path / "none", 1)
