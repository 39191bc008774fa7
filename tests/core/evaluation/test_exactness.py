"""The exactness comparison finds both agreement and the lack of it."""

from pathlib import Path

import pytest

from prove_core.errors import DataError
from prove_core.evaluation.exactness import compare
from prove_core.evaluation.prompts import read_prompts
from prove_core.model.window import PassOutput, Window
from prove_core.types import Limits
from tests.core.engine.harness import running
from tests.core.toy import ToyRunner

PROMPTS = [(index, 1, 2) for index in range(20)]


def test_a_correct_engine_is_exact_at_every_block_size_and_acceptance_length() -> None:
    with running(ToyRunner(4, 0.7)) as engine:
        results = compare(engine, PROMPTS, Limits(60), [1, 4, 8])
    assert [result.equal for result in results] == [20, 20, 20]
    assert all(count > 0 for result in results[1:] for count in result.accepted)


def test_a_model_that_reads_blocks_differently_is_found_out() -> None:
    class Inconsistent(ToyRunner):
        def run(self, windows: list[Window]) -> PassOutput:  # type: ignore[override]
            output = super().run(windows)
            for window, rows in zip(windows, output.outputs, strict=True):
                if window.targets and window.start % 3 == 0:
                    object.__setattr__(rows, "argmax", (49, *rows.argmax[1:]))
            return output

    with running(Inconsistent(4, 0.7)) as engine:
        (result,) = compare(engine, PROMPTS, Limits(60), [8])
    assert result.equal < 20
    assert len(result.first_difference) == 20 - result.equal


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("", "no prompts"), ('{"prompt": "a"}\n{"x": 1}\n', "line 2"), ("{\n", "line 1"), ('{"prompt": 3}\n', "line 1")],
)
def test_bad_prompt_files_are_refused_with_the_line(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=complaint):
        read_prompts(path, 10)


def test_prompts_are_questions_or_prompts_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"question": "a?"}\n\n{"prompt": "b"}\n{"prompt": "c"}\n')
    assert read_prompts(path, 2) == ["a?", "b"]
    with pytest.raises(DataError, match="cannot read"):
        read_prompts(tmp_path / "none", 2)
