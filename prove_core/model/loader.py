"""Loading a checkpoint: weights, tokenizer and what the engine must know about them."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from prove_core.config import ModelConfig
from prove_core.errors import CheckpointError, UnsupportedModel
from prove_core.model.adapters import AdapterKind
from prove_core.model.apply import apply_adapter
from prove_core.model.hook import ATTENTION, register
from prove_core.model.info import CheckpointInfo, find_adapter, gather_info
from prove_core.model.layers import limit_layers, pick_layers, wanted_layers
from prove_core.model.loading_bar import reporting
from prove_core.model.progress import SILENT, Progress
from prove_core.model.quiet import quiet
from prove_core.model.ranks import Ranks
from prove_core.model.recall import Recall
from prove_core.model.rows import RowMask
from prove_core.model.sequential import SequentialHead
from prove_core.model.shard import shard_model
from prove_core.model.source import Description, Source, describe, one_line, resolve


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A checkpoint ready to run.

    `model` is in eval mode, on its device, without gradients. `layers`: which of the checkpoint's decoder layers it
    has, None for all. `placeholder_table` ([n, hidden], the model's dtype and device) replaces the embedding layer's
    output on placeholder rows: the i-th placeholder of a window takes row min(i, n - 1); None: placeholders use the
    embedding of `info.placeholder_id`. `rows` must name a pass's placeholder rows during its forward: a gated adapter
    works on those alone. `sequential`, if the adapter has one, is on the model's device in its dtype; `recall` goes
    with it.
    """

    info: CheckpointInfo
    model: PreTrainedModel
    layers: tuple[int, ...] | None
    rows: RowMask
    placeholder_table: torch.Tensor | None
    adapter: AdapterKind | None
    sequential: SequentialHead | None
    recall: Recall | None


def load(
    config: ModelConfig, progress: Progress = SILENT, *, attention: str = ATTENTION, ranks: Ranks | None = None
) -> LoadedModel:
    """Load `config.checkpoint` with its adapter; this rank's share of it, where there are `ranks`.

    Raises CheckpointError or UnsupportedModel, in one line.
    """
    register()
    device = pick_device(config.device)
    source = resolve(config.checkpoint, progress)
    description = describe(source)
    adapter = find_adapter(config, source)
    info = gather_info(config, source, description, adapter)
    layers = wanted_layers(config.layers, adapter, description.text.num_hidden_layers, source.name)
    if layers is not None:
        limit_layers(description.text, max(layers) + 1)
    place = device if ranks is None else torch.device("cpu")  # the whole may not fit where a share does
    with reporting(progress, f"loading {source.name} to {place}"):
        model = _weights(source, description, getattr(torch, config.dtype), attention, place)
    if layers is not None:
        pick_layers(model, layers)
    rows, table = RowMask(), None
    if adapter is not None:
        progress.stage(f"applying the adapter {adapter.path.name}")
        model, table = apply_adapter(model, adapter, rows)
    if ranks is not None:
        progress.stage(f"taking the share of rank {ranks.rank}")
        shard_model(model, ranks, device)
        table = None if table is None else table.to(device)
    kind = None if adapter is None else adapter.kind
    head = None if adapter is None else adapter.sequential_head()
    head = None if head is None else head.to(device, model.dtype).requires_grad_(False)
    recall = None if adapter is None or adapter.record is None else adapter.record.recall
    return LoadedModel(info, model.eval().requires_grad_(False), layers, rows, table, kind, head, recall)


def pick_device(name: str) -> torch.device:
    """`auto` is cuda when there is one. Raises CheckpointError for a device that isn't there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise CheckpointError(f"device {name!r} is not a device: use auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise CheckpointError(f"device {name!r} is not there: torch sees {torch.cuda.device_count()} CUDA devices")
    return device


def _weights(
    source: Source, description: Description, dtype: torch.dtype, attention: str, device: torch.device
) -> PreTrainedModel:
    """The model on its device: each tensor goes there as it is read, never all of them by way of the CPU's memory."""
    try:
        with quiet():
            model, report = AutoModelForCausalLM.from_pretrained(
                source.location,
                config=description.config,
                dtype=dtype,
                attn_implementation=attention,
                device_map={"": device},
                output_loading_info=True,
            )
    except ValueError as error:
        raise UnsupportedModel(f"checkpoint {source.name!r} cannot be run: {one_line(error)}") from error
    except Exception as error:
        raise CheckpointError(
            f"weights of checkpoint {source.name!r} cannot be read: {one_line(error)}; fetch its files again"
        ) from error
    _check_complete(source, report)
    return model


def _check_complete(source: Source, report: dict[str, Any]) -> None:
    """transformers fills in missing weights at random: refuse instead."""
    missing = sorted(report["missing_keys"])
    if missing:
        raise CheckpointError(
            f"weights of checkpoint {source.name!r} lack {len(missing)} tensors ({missing[0]}, ...):"
            " fetch its files again"
        )
