"""What the documents name is there: files, headings, commands and their options, settings' keys."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from services.cli.main import app

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "docs", "deploy", "dashboards", "prove_core/adapters/*")
DOCUMENTS = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/*.md"))
LINK = re.compile(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)")
COMMAND = re.compile(r"(?:^ {4}|`)(?:\.venv/bin/)?prove ([^`\n]+)", re.MULTILINE)
SETTING = re.compile(r"`((?:admission|healing|limits|security|logging|tracing|decoding)\.[a-z_]+)`")


def _anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _commands(text: str) -> Iterator[tuple[Any, list[str]]]:
    """Each `prove ...` with the words that follow its command."""
    for line in COMMAND.findall(text.replace("\\\n", " ")):
        command, words = get_command(app), line.split()
        while words and words[0] in (commands := getattr(command, "commands", {})):
            command = commands[words.pop(0)]
        yield command, words


@pytest.fixture(params=DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def document(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_links_lead_somewhere(document: Path) -> None:
    for target, anchor in LINK.findall(document.read_text(encoding="utf-8")):
        path = document.parent / target if target else document
        assert path.exists(), target
        assert not anchor or anchor in _anchors(path), f"{target}#{anchor}"


def test_commands_have_the_options_that_are_shown(document: Path) -> None:
    for command, words in _commands(document.read_text(encoding="utf-8")):
        options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= options | {"--help"}, (command.name, words)


def test_settings_have_the_names_that_are_told(document: Path) -> None:
    keys: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "local.yaml").read_text(encoding="utf-8"))
    keys["decoding"]["trace"] = None  # of requests alone
    modules = {"admission.reception"}  # which have names of the same kind
    for name in set(SETTING.findall(document.read_text(encoding="utf-8"))) - modules:
        section, _, key = name.partition(".")
        assert key in keys[section], name
