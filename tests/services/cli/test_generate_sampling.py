"""`prove generate --temperature`: refused in a line where it cannot be, repeated by its seed where it can."""

import pytest
from typer.testing import CliRunner

from services.cli.main import app


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--temperature", "-1"], "temperature"),
        (["--temperature", "nan"], "temperature"),
        (["--top-p", "0"], "top_p"),
        (["--top-k", "-2"], "top_k"),
        (["--temperature", "1", "--mode", "mars"], "not 'mars'"),
    ],
)
def test_what_cannot_be_drawn_is_refused_naming_the_field(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["generate", "hi", *arguments])
    assert result.exit_code == 1
    assert words in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.model
def test_a_seed_repeats_its_text() -> None:
    arguments = ["generate", "Name a colour.", "--quiet", "--max-tokens", "12", "--temperature", "1.2", "--mode"]
    texts = [
        CliRunner().invoke(app, [*arguments, mode, "--seed", seed]).stdout
        for mode, seed in (("ar", "1"), ("ar", "1"), ("ar", "2"))
    ]
    assert texts[0].strip()
    assert texts[0] == texts[1] != texts[2]
