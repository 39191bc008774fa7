"""What commands print where no terminal is, and on a narrow one."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress as Display

from prove_core.model.builtin import BuiltinStatus
from services.cli.models import show, tabbed
from services.cli.progress import Bars, Lines, bar_columns

PATH = Path("/home/somebody/.cache/prove/checkpoints/smollm2-135m-instruct-1")
CACHED = BuiltinStatus(
    "default-proposer", "A model with a rather long description", "Apache-2.0", 271_000_001, True, PATH
)
ABSENT = BuiltinStatus("default-verifier", "Another", "MIT", 5, False, PATH)


class Flushed(io.StringIO):
    """What another process would see so far."""

    seen = ""

    def flush(self) -> None:
        self.seen = self.getvalue()


def test_stages_are_plain_lines_at_once() -> None:
    out = Flushed()
    lines = Lines(Console(file=out, width=20))
    lines.stage("starting [Ray] and everything else that it needs")
    assert out.seen == "starting [Ray] and everything else that it needs ...\n"
    lines.stage("fetching", total=3)
    lines.advance(3)
    assert out.seen.endswith("\nfetching ...\n")
    lines.stage("next")
    *_, done, following = out.seen.splitlines()
    assert done.startswith("fetching: done in ")
    assert following == "next ..."
    lines.finish()
    assert out.seen.endswith("next ...\n")


def test_notes_in_a_log_are_few_and_the_last_is_not_lost() -> None:
    out = Flushed()
    lines = Lines(Console(file=out, width=20))
    lines.stage("training", total=9)
    for step in range(9):
        lines.note(f"step {step} [of] nine, with more to say")
    assert out.seen == "training ...\nstep 0 [of] nine, with more to say\n"
    lines.finish()
    *_, last, done = out.seen.splitlines()
    assert len(out.seen.splitlines()) == 4
    assert last == "step 8 [of] nine, with more to say"
    assert done.startswith("training: done in ")


def test_a_bar_shows_its_note() -> None:
    out = io.StringIO()
    columns = bar_columns()
    with Display(*columns, console=Console(file=out, force_terminal=True, width=100)) as display:
        bars = Bars(display)
        bars.stage("reading [this]")
        bars.stage("training", total=2)
        bars.advance(1)
        bars.note("loss 2.5")
    assert "reading [this]" in out.getvalue()
    assert "loss 2.5" in out.getvalue()


def test_models_for_another_program() -> None:
    row = ("default-proposer", "A model with a rather long description", "Apache-2.0", "271000001", str(PATH))
    assert tuple(tabbed(CACHED).split("\t")) == row
    assert tabbed(ABSENT).split("\t") == ["default-verifier", "Another", "MIT", "5", ""]


@pytest.mark.parametrize("width", [20, 40, 80, 100, 200])
def test_models_on_a_narrow_terminal_are_whole(width: int) -> None:
    out = io.StringIO()
    show([CACHED, ABSENT], Console(file=out, width=width, force_terminal=True, color_system=None))
    text = out.getvalue()
    for word in ("description", "license", "cached", "default-proposer", "Apache-2.0", "271 MB", str(PATH)):
        assert word in text
    assert "…" not in text
    assert " ".join(text.split()).count("rather") == 1
