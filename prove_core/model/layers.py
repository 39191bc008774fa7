"""Keeping a part of a checkpoint's decoder layers: a cheaper model with the same tokenizer, embedding and head."""

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from prove_core.errors import CheckpointError, UnsupportedModel
from prove_core.model.adapters import AdapterFolder

Layers = tuple[int, ...]


def wanted_layers(
    configured: int | Layers | None, adapter: AdapterFolder | None, total: int, name: str
) -> Layers | None:
    """Ascending indices of the layers to keep, None for all: as configured, else those the adapter was trained on.

    Raises CheckpointError where there is no such layer, or where adapter and configuration disagree.
    """
    trained = None if adapter is None or adapter.record is None else adapter.record.layers
    chosen = tuple(range(configured)) if isinstance(configured, int) else configured
    if adapter is not None and chosen is not None and chosen != (trained or tuple(range(total))):
        raise CheckpointError(f"adapter {adapter.path} was trained on other layers: leave `layers` out")
    chosen = trained if chosen is None else chosen
    if chosen is None:
        return None
    if not chosen or list(chosen) != sorted(set(chosen)):
        raise CheckpointError(f"layers {list(chosen)} must be one or more different ones, in ascending order")
    if chosen[-1] >= total:
        raise CheckpointError(f"checkpoint {name!r} has {total} layers: it cannot keep layer {chosen[-1]} (from 0)")
    return chosen


def limit_layers(text: PretrainedConfig, count: int) -> None:
    """Let a text model's configuration have its first `count` layers only."""
    _keep(text, tuple(range(count)))


def pick_layers(model: PreTrainedModel, chosen: Layers) -> None:
    """Drop all other layers of a loaded model, whose configuration follows."""
    decoder = model.get_decoder()
    layers = getattr(decoder, "layers", None)
    if len(chosen) == model.config.get_text_config(decoder=True).num_hidden_layers:
        return
    if not isinstance(layers, nn.ModuleList):
        raise UnsupportedModel("only leading layers of this model type can be kept: give `layers` as a number")
    kept = [layers[index] for index in chosen]
    for index, layer in enumerate(kept):
        for module in layer.modules():
            if isinstance(getattr(module, "layer_idx", None), int):
                setattr(module, "layer_idx", index)  # noqa: B010 - typed as a submodule otherwise
    decoder.layers = nn.ModuleList(kept)
    _keep(model.config.get_text_config(decoder=True), chosen)


def _keep(text: PretrainedConfig, chosen: Layers) -> None:
    total = text.num_hidden_layers
    for key, value in list(vars(text).items()):
        if "layer" in key and isinstance(value, list) and len(value) == total:  # one entry per layer
            setattr(text, key, [value[index] for index in chosen])
    text.num_hidden_layers = len(chosen)
