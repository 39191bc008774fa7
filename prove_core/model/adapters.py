"""Adapter folders: PEFT's LoRA layout, a `prove.json` that says what they are for, and placeholder embeddings.

adapter_config.json        PEFT's own, so that peft reads the folder
adapter_model.safetensors  base_model.model.<module>.lora_A.weight [rank, in], ....lora_B.weight [out, rank]
prove.json                 AdapterRecord; without it the folder is a plain PEFT adapter, hence ungated
placeholder.safetensors    `placeholder` [n, hidden], if the placeholder's embedding was trained
sequential.safetensors     the parameters of a SequentialHead, if there is one
"""

import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import torch
from pydantic import Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from prove_core.config import Frozen
from prove_core.errors import CheckpointError
from prove_core.model.recall import Recall
from prove_core.model.sequential import SequentialHead
from prove_core.model.source import Source, one_line
from prove_core.types import Calibration

T = TypeVar("T", bound=Frozen)
PREFIX = "base_model.model."
RECORD, CONFIG, WEIGHTS, PLACEHOLDER, SEQUENTIAL = (
    "prove.json",
    "adapter_config.json",
    "adapter_model.safetensors",
    "placeholder.safetensors",
    "sequential.safetensors",
)


class AdapterKind(StrEnum):
    """Gated: acts on placeholder rows alone, so all other rows are the base's own. Ungated: acts on every row."""

    GATED = "gated"
    UNGATED = "ungated"


class BaseRecord(Frozen):
    """The checkpoint that an adapter was trained on. `revision` identifies its weights where something does."""

    name: str
    revision: str | None = None


class AdapterRecord(Frozen):
    """What `prove.json` says. 0: there is no embedding table of `placeholder_rows` rows, no head `sequential` wide.

    `layers`: the base's decoder layers that it was trained on, in order; None: all of them. `calibration`: what its
    confidences come to as chances (`prove train calibration`), `recall`: what candidates of the head gain by having
    followed the same tokens before (`prove train recall`); None: not fitted.
    """

    kind: AdapterKind
    base: BaseRecord
    layers: tuple[int, ...] | None = None
    placeholder: str | None = None
    placeholder_rows: int = 0
    sequential: int = 0
    block_size: int | None = None
    calibration: Calibration | None = None
    recall: Recall | None = None
    notes: str = ""


class LoraSettings(Frozen, extra="ignore"):
    """The part of PEFT's adapter_config.json that we interpret."""

    peft_type: str = "LORA"
    r: int
    lora_alpha: float
    use_rslora: bool = False
    use_dora: bool = False
    bias: str = "none"
    rank_pattern: dict[str, int] = Field(default_factory=dict)
    alpha_pattern: dict[str, float] = Field(default_factory=dict)
    modules_to_save: list[str] | None = None

    @property
    def scale(self) -> float:
        """The factor on B(Ax)."""
        return float(self.lora_alpha / (self.r**0.5 if self.use_rslora else self.r))


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """An adapter's small files; the tensors are read on demand."""

    path: Path
    record: AdapterRecord | None
    settings: LoraSettings

    @property
    def kind(self) -> AdapterKind:
        """A folder without a record is a plain PEFT adapter."""
        return AdapterKind.UNGATED if self.record is None else self.record.kind

    def tensors(self) -> dict[str, torch.Tensor]:
        """The LoRA matrices by their names in the file."""
        return _load(self.path / WEIGHTS)

    def placeholder_table(self) -> torch.Tensor | None:
        """The placeholder embeddings [n, hidden] as stored, or None."""
        rows = 0 if self.record is None else self.record.placeholder_rows
        if not rows:
            return None
        table = _load(self.path / PLACEHOLDER).get("placeholder")
        if table is None or table.dim() != 2 or len(table) != rows:
            raise CheckpointError(
                f"adapter {self.path}: {PLACEHOLDER} does not hold the {rows} rows that {RECORD} says"
            )
        return table

    def sequential_head(self) -> SequentialHead | None:
        """The sequential head in the dtype it is stored in, or None."""
        width = 0 if self.record is None else self.record.sequential
        if not width:
            return None
        tensors = _load(self.path / SEQUENTIAL)
        try:
            head = SequentialHead(tensors["a"].shape[1], width, len(tensors["position"]))
            head.to(tensors["a"].dtype).load_state_dict(tensors)
        except (KeyError, IndexError, RuntimeError) as error:
            raise CheckpointError(
                f"adapter {self.path}: {SEQUENTIAL} holds no head of width {width}, as {RECORD} says: copy it again"
            ) from error
        return head


def read_adapter(folder: str) -> AdapterFolder:
    """Read an adapter folder's configuration. Raises CheckpointError."""
    path = Path(folder).expanduser()
    if not path.is_dir():
        raise CheckpointError(f"no adapter folder {folder!r}: check the path")
    for name in (CONFIG, WEIGHTS):
        if not (path / name).is_file():
            raise CheckpointError(f"adapter folder {folder!r} has no {name}: it is no PEFT (LoRA) adapter")
    settings = _parse(LoraSettings, path / CONFIG)
    if settings.peft_type != "LORA":
        raise CheckpointError(f"adapter {folder!r} is of type {settings.peft_type}: only LORA is supported")
    record = _parse(AdapterRecord, path / RECORD) if (path / RECORD).is_file() else None
    return AdapterFolder(path, record, settings)


def base_record(source: Source) -> BaseRecord:
    """What an adapter trained on this checkpoint should name as its base."""
    if source.stock is not None:
        return BaseRecord(name=source.stock.name, revision=source.stock.wheel.sha256)
    return BaseRecord(name=Path(source.location).name if source.is_local else source.location)


def check_base(adapter: AdapterFolder, source: Source) -> None:
    """Refuse an adapter made for another base. A local folder's name proves nothing: there the shapes must tell."""
    if adapter.record is None or source.is_local:
        return
    wanted, here = adapter.record.base, base_record(source)
    names = {here.name, *(source.stock.aliases if source.stock is not None else ())}
    if wanted.name not in names:
        raise CheckpointError(
            f"adapter {adapter.path} was trained on {wanted.name!r}, not on {here.name!r}: use that base"
        )
    if wanted.revision and here.revision and wanted.revision != here.revision:
        raise CheckpointError(
            f"adapter {adapter.path} was trained on another revision of {wanted.name!r}: train it again"
        )


def save_adapter(
    folder: Path,
    tensors: Mapping[str, torch.Tensor],
    record: AdapterRecord,
    *,
    rank: int,
    alpha: float,
    placeholder: torch.Tensor | None = None,
    sequential: Mapping[str, torch.Tensor] | None = None,
) -> None:
    """Write an adapter folder, replacing it as a whole. `tensors` are named as in the file; `placeholder`: [n, hidden];
    `sequential`: the state of a SequentialHead.

    `record.placeholder_rows` and `record.sequential` are set from them. The tensors' dtypes are kept.
    """
    rows = 0 if placeholder is None else len(placeholder)
    width = 0 if sequential is None else len(sequential["a"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        save_file({name: _plain(tensor) for name, tensor in tensors.items()}, work / WEIGHTS, {"format": "pt"})
        (work / CONFIG).write_text(json.dumps(_peft_config(tensors, record, rank, alpha), indent=2))
        if placeholder is not None:
            save_file({"placeholder": _plain(placeholder)}, work / PLACEHOLDER, {"format": "pt"})
        if sequential is not None:
            save_file(
                {name: _plain(tensor) for name, tensor in sequential.items()}, work / SEQUENTIAL, {"format": "pt"}
            )
        complete = record.model_copy(update={"placeholder_rows": rows, "sequential": width})
        (work / RECORD).write_text(complete.model_dump_json(indent=2))
        work.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        work.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _peft_config(
    tensors: Mapping[str, torch.Tensor], record: AdapterRecord, rank: int, alpha: float
) -> dict[str, object]:
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": record.base.name,
        "r": rank,
        "lora_alpha": alpha,
        "target_modules": sorted({name.split(".")[-3] for name in tensors}),
        "bias": "none",
        "lora_dropout": 0.0,
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().cpu().contiguous()


def _load(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"adapter file {path} cannot be read: {one_line(error)}; copy it again") from error


def _parse(kind: type[T], path: Path) -> T:
    try:
        return kind.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": one_line(error)}
        where = ".".join(str(part) for part in reason["loc"])
        raise CheckpointError(f"{path} is invalid: {where + ': ' if where else ''}{reason['msg']}") from error
