"""What attention a model needs, found by one dummy forward pass; refuses what this engine would compute wrongly."""

from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel

from prove_core.attention.base import LayerSpec
from prove_core.errors import UnsupportedModel
from prove_core.model.hook import ATTENTION, CONTEXT, register

_ROWS = 3
_TRIAL_ROWS, _TRIAL_STRIDE = 8, 997
_SUPPORTED_LAYERS = {"full_attention", "sliding_attention"}
# what layers pass to every attention function, of no meaning to ours
_IGNORED_OPTIONS = {"dropout", "position_ids", "position_embeddings", "use_cache", "return_dict", "is_causal"}


def probe(model: PreTrainedModel) -> list[LayerSpec]:
    """The model's attention layers in order of index, heads as the attention function sees them.

    Switches the model to our attention. Raises `UnsupportedModel` where serving it would give wrong results.
    """
    _refuse_by_config(model)
    register()
    model.set_attn_implementation(ATTENTION)
    specs = sorted(_record(model), key=lambda spec: spec.index)
    count = text_config(model).num_hidden_layers
    if [spec.index for spec in specs] != list(range(count)):
        raise _refusal(model, f"its {count} layers made {len(specs)} attention calls that we can tell apart")
    _check_windows(model, specs)
    return specs


def trial_logits(model: PreTrainedModel) -> torch.Tensor:
    """Logits (float32 [rows, vocabulary]) of a short dummy pass with plain causal attention and no cache.

    For comparing two forms of one model: `probe` must have accepted it.
    """
    rows = torch.arange(_TRIAL_ROWS, device=model.device)
    ids = (_TRIAL_STRIDE * (rows + 1)) % model.get_input_embeddings().weight.shape[0]  # few of them special ones
    with torch.inference_mode():
        output = model(input_ids=ids[None], position_ids=rows[None], use_cache=False, **{CONTEXT: _PlainAttention()})
    logits: torch.Tensor = output.logits[0].float()
    return logits


class _PlainAttention:
    """Causal attention over the rows of one pass, windows and soft caps left out."""

    def attend(
        self, module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: dict[str, Any]
    ) -> torch.Tensor:
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return out[0].transpose(0, 1)


def text_config(model: PreTrainedModel) -> Any:
    """The configuration of the decoder (itself part of a larger one in some families)."""
    return model.config.get_text_config(decoder=True)


def _record(model: PreTrainedModel) -> list[LayerSpec]:
    """Specs of the attention calls of one dummy pass, called just as the runner will."""
    recorder = _Recorder()
    rows = torch.arange(_ROWS, device=model.device)
    with torch.inference_mode():
        try:
            output = model(
                input_ids=torch.zeros_like(rows)[None],
                position_ids=rows[None],
                use_cache=False,
                logits_to_keep=rows[1:2],
                **{CONTEXT: recorder},
            )
        except UnsupportedModel:
            raise
        except Exception as error:
            raise _refusal(model, f"a trial pass failed ({' '.join(str(error).split())})") from error
    if output.logits.shape[:2] != (1, 1):
        raise _refusal(model, "it cannot give the logits of chosen rows alone")
    return recorder.specs


class _Recorder:
    """Stands in for attention: notes each layer's spec and answers with zeros."""

    def __init__(self) -> None:
        self.specs: list[LayerSpec] = []

    def attend(
        self, module: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: dict[str, Any]
    ) -> torch.Tensor:
        known = _IGNORED_OPTIONS | {"scaling", "sliding_window", "softcap"}
        unset = (None, False)
        unknown = [n for n, value in options.items() if n not in known and not any(value is u for u in unset)]
        if unknown:
            raise UnsupportedModel(f"{type(module).__name__} needs attention options we lack: {', '.join(unknown)}")
        if not getattr(module, "is_causal", True) or options.get("is_causal") is False:
            raise UnsupportedModel(f"{type(module).__name__} attends to later tokens (not causal)")
        scaling = options.get("scaling")
        self.specs.append(
            LayerSpec(
                index=int(getattr(module, "layer_idx", -1)),
                query_heads=q.shape[1],
                kv_heads=k.shape[1],
                head_dim=k.shape[2],
                value_dim=v.shape[2],
                scaling=float(k.shape[2] ** -0.5 if scaling is None else scaling),
                window=options.get("sliding_window"),
                softcap=options.get("softcap"),
            )
        )
        return q.new_zeros(q.shape[0], q.shape[1], v.shape[2])


def _refuse_by_config(model: PreTrainedModel) -> None:
    config = text_config(model)
    reasons = {
        "is an encoder-decoder": config.is_encoder_decoder,
        "has its own attention code": not model._supports_attention_backend,
        "uses ALiBi position biases": getattr(config, "alibi", False),
        "is not causal": getattr(config, "is_causal", True) is False,
        "keeps a recurrent state": getattr(model, "_is_stateful", False),
        "shares KV between layers": getattr(config, "num_kv_shared_layers", 0),
    }
    reasons |= {f"has layers of type {kind}": True for kind in _layer_types(config) - _SUPPORTED_LAYERS}
    reasons |= {
        f"scales its rotary positions by the longest sequence of the batch ({kind})": True
        for kind in _rope_types(getattr(config, "rope_parameters", None)) & {"dynamic", "longrope"}
    }
    for reason, holds in reasons.items():
        if holds:
            raise _refusal(model, f"it {reason}")


def _layer_types(config: Any) -> set[str]:
    return set(getattr(config, "layer_types", None) or ())


def _rope_types(parameters: Any) -> set[str]:
    """Rotary types of a config's `rope_parameters`: flat, or one set of parameters per layer type."""
    if not isinstance(parameters, dict):
        return set()
    own = {parameters["rope_type"]} if "rope_type" in parameters else set()
    return own.union(*(_rope_types(value) for value in parameters.values()))


def _check_windows(model: PreTrainedModel, specs: list[LayerSpec]) -> None:
    """A layer that config calls sliding must have told its window to the attention function."""
    types = getattr(text_config(model), "layer_types", None) or []
    for spec, kind in zip(specs, types, strict=False):
        if (kind == "sliding_attention") != (spec.window is not None):
            raise _refusal(model, f"layer {spec.index} is {kind} but its attention window is {spec.window}")


def _refusal(model: PreTrainedModel, why: str) -> UnsupportedModel:
    return UnsupportedModel(f"{type(model).__name__} cannot be served: {why}")
