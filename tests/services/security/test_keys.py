"""Where keys come from, what is refused as one, and that a file may change under a running server."""

import logging
from pathlib import Path

import pytest

from services.config.yaml_config import SettingsError
from services.security.keys import Keys
from services.security.settings import SecuritySettings

ONE, TWO, THREE = "key-one-0123456789", "key-two-0123456789", "key-three-0123456789"


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _from_file(path: Path) -> Keys:
    keys = Keys.load(SecuritySettings(api_keys_file=str(path)))
    assert keys is not None
    return keys


def test_without_a_source_there_is_no_guard() -> None:
    assert Keys.load(SecuritySettings(), {"KEYS": ONE}) is None


def test_both_sources_add_up(tmp_path: Path) -> None:
    file = _write(tmp_path / "keys", f"# team a\n{ONE}\n\n  {TWO}  \n")
    keys = Keys.load(SecuritySettings(api_keys_file=str(file), api_keys_env="KEYS"), {"KEYS": f"{THREE}, "})
    assert keys is not None
    assert all(keys.accept(key.encode()) for key in (ONE, TWO, THREE))


@pytest.mark.parametrize("wrong", [b"", ONE[:-1].encode(), ONE.encode() + b"x", ONE.upper().encode(), b"\xff" * 20])
def test_nothing_else_is_accepted(tmp_path: Path, wrong: bytes) -> None:
    assert not _from_file(_write(tmp_path / "keys", f"{ONE}\n# {TWO}\n")).accept(wrong)
    assert not _from_file(tmp_path / "keys").accept(f"# {TWO}".encode())


@pytest.mark.parametrize(
    "text", ["", "# none\n", "short\n", f"{ONE} {TWO}\n", f"{ONE}\nshort\n", "schlüssel-0123456789\n"]
)
def test_a_file_without_good_keys_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        _from_file(file)
    assert str(file) in str(caught.value)
    assert "short" not in str(caught.value)
    assert ONE not in str(caught.value)


def test_a_missing_file_or_variable_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        _from_file(tmp_path / "none")
    with pytest.raises(SettingsError, match="variable KEYS holds no key"):
        Keys.load(SecuritySettings(api_keys_env="KEYS"), {})


def test_a_changed_file_changes_the_keys(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = _from_file(_write(tmp_path / "keys", f"{ONE}\n"))
    _write(tmp_path / "keys", f"{ONE}\n{TWO}\n")
    assert keys.accept(ONE.encode())
    assert keys.accept(TWO.encode())
    _write(tmp_path / "keys", f"{TWO}\n")
    assert not keys.accept(ONE.encode())
    for spoilt in ("short\n", ""):
        _write(tmp_path / "keys", spoilt)
        assert keys.accept(TWO.encode())
    (tmp_path / "keys").unlink()
    assert keys.accept(TWO.encode())
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert TWO not in caplog.text
    _write(tmp_path / "keys", f"{THREE}\n")
    assert keys.accept(THREE.encode())
    assert not keys.accept(TWO.encode())


def test_what_holds_keys_does_not_show_them(tmp_path: Path) -> None:
    keys = _from_file(_write(tmp_path / "keys", f"{ONE}\n"))
    assert ONE not in repr(vars(keys)) + repr(vars(keys._file)) + repr(keys)
