"""The probe reads every layer off one pass, and refuses what the engine would compute wrongly."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from prove_core.attention.base import LayerSpec
from prove_core.errors import UnsupportedModel
from prove_core.model.probe import probe
from tests.core.tiny import tiny_model

_SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def build(kind: str, **changes: Any) -> PreTrainedModel:
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **{**_SIZES, **changes})).eval()


def test_llama() -> None:
    assert probe(tiny_model("llama")) == [LayerSpec(i, 4, 2, 16, 16, 0.25) for i in range(3)]


def test_windows_and_softcaps_per_layer() -> None:
    specs = probe(tiny_model("gemma2"))
    assert [(s.window, s.softcap) for s in specs] == [(6, 5.0), (None, 5.0), (6, 5.0)]
    assert [s.window for s in probe(tiny_model("gemma3_text"))] == [5, None, 5]
    assert [s.window for s in probe(tiny_model("mistral"))] == [7, 7, 7]


def test_values_narrower_than_keys() -> None:
    latent = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 12}
    experts = {"n_routed_experts": 2, "num_experts_per_tok": 1, "n_group": 1, "topk_group": 1}
    (spec, _) = probe(build("deepseek_v3", **latent, **experts, moe_intermediate_size=32, num_key_value_heads=4))
    assert (spec.query_heads, spec.kv_heads, spec.head_dim, spec.value_dim) == (4, 4, 16, 12)


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "rotary"),
        (
            "phi3",
            {
                "rope_parameters": {
                    "rope_type": "longrope",
                    "rope_theta": 1e4,
                    "short_factor": [1.0] * 4,
                    "long_factor": [2.0] * 4,
                },
                "original_max_position_embeddings": 64,
                "pad_token_id": 0,
            },
            "rotary",
        ),
        ("gpt_oss", {"num_local_experts": 2, "head_dim": 8}, "s_aux"),
        ("falcon", {"alibi": True}, "cannot be served"),
        ("bloom", {"n_head": 4, "n_layer": 2}, "attention code"),
        ("mamba", {}, "cannot be served"),
        ("lfm2", {"layer_types": ["conv", "full_attention"]}, "layers of type conv"),
        ("bert", {}, "not causal"),
        ("llama4_text", {"head_dim": 8, "num_local_experts": 2, "intermediate_size_mlp": 48}, "chunked_attention"),
    ],
)
def test_refusals(kind: str, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedModel, match=reason) as caught:
        probe(build(kind, **changes))
    assert "\n" not in str(caught.value)


def test_refuses_a_window_that_attention_is_not_told_of() -> None:
    model = tiny_model("gemma3_text")
    model.model.layers[0].self_attn.sliding_window = None
    with pytest.raises(UnsupportedModel, match="layer 0"):
        probe(model)


def test_refuses_layers_it_cannot_tell_apart() -> None:
    model = tiny_model("llama")
    model.model.layers[1].self_attn.layer_idx = 0
    with pytest.raises(UnsupportedModel, match="tell apart"):
        probe(model)


def test_refuses_what_fails() -> None:
    model = tiny_model("llama")
    model.model.norm.weight = torch.nn.Parameter(torch.ones(3))
    with pytest.raises(UnsupportedModel, match="trial pass failed"):
        probe(model)
