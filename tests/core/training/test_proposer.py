from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from prove_core.errors import CheckpointError, UnsupportedModel
from prove_core.training.config import Method
from prove_core.training.layout import BlockBatch, lay_out
from prove_core.training.proposer import BlockProposer
from tests.core.tiny import tiny_model
from tests.core.training.examples import BLOCK_SIZE, adapter_config, greedy_examples, stirred_proposer, tiny_proposer

GATEABLE = ["llama", "qwen2", "qwen3"]


def batch_of(family: str, method: Method = Method.GATED) -> tuple[BlockProposer, BlockBatch]:
    examples = greedy_examples(tiny_model(family), 3, length=9)
    return stirred_proposer(family, method), lay_out(examples, [[3, 7], [4], [5, 6, 9]], BLOCK_SIZE)


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("family", GATEABLE)
def test_a_block_in_a_batch_equals_the_window_of_inference(family: str, method: Method) -> None:
    """One block at a time, as a plain causal pass over KV of the clean tokens: what an engine computes."""
    proposer, batch = batch_of(family, method)
    hidden = proposer.rows(batch).placeholders
    model = proposer.backbone.model
    table = proposer.placeholder.expand(BLOCK_SIZE - 1, -1)
    for row, block, anchor in [(0, 0, 3), (0, 1, 7), (1, 0, 4), (2, 2, 9)]:
        model.config._attn_implementation = "eager"
        with torch.no_grad():
            context = model(batch.tokens[row : row + 1, : anchor + 1], use_cache=True)
            with proposer.backbone.gate.opened():
                window = model.get_decoder()(
                    inputs_embeds=table[None],
                    past_key_values=context.past_key_values,
                    position_ids=torch.arange(anchor + 1, anchor + BLOCK_SIZE)[None],
                )
        torch.testing.assert_close(hidden[row, block], window.last_hidden_state[0], rtol=1e-4, atol=1e-4)


def test_the_clean_stream_is_the_stock_model_bit_for_bit() -> None:
    proposer, batch = batch_of("llama")
    stock = tiny_model("llama")
    stock.config._attn_implementation = "sdpa"
    with torch.no_grad():
        expected = stock(batch.tokens, use_cache=True).past_key_values
    _, context = proposer._clean(batch)
    for layer, keys in enumerate(context.keys):
        assert torch.equal(keys, expected.layers[layer].keys)
        assert torch.equal(context.values[layer], expected.layers[layer].values)


@pytest.mark.parametrize("method", [Method.UNGATED, Method.FULL])
def test_gradients_reach_through_the_context(method: Method) -> None:
    """Against autograd over plain causal passes, one per block, of its clean tokens and placeholders."""
    proposer, batch = batch_of("llama", method)
    weights = dict(proposer.named_parameters())
    probe = torch.randn(proposer.rows(batch).placeholders.shape, generator=torch.Generator().manual_seed(3))
    (proposer.rows(batch).placeholders * probe).sum().backward()
    found = {name: p.grad.clone() for name, p in weights.items() if p.grad is not None}
    for parameter in weights.values():
        parameter.grad = None
    model = proposer.backbone.model
    model.config._attn_implementation = "eager"
    table = proposer.placeholder.expand(BLOCK_SIZE - 1, -1)
    for row, anchors in enumerate(batch.anchors.tolist()):
        for block, anchor in enumerate(anchors):
            clean = proposer.backbone.embedding(batch.tokens[row, : anchor + 1])
            out = model.get_decoder()(inputs_embeds=torch.cat((clean, table))[None], use_cache=False)
            (out.last_hidden_state[0, anchor + 1 :] * probe[row, block]).sum().backward()
    expected = {name: p.grad for name, p in weights.items() if p.grad is not None}
    assert set(found) == set(expected)
    assert any("k_proj" in name for name in found)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-3, atol=1e-3, msg=name)


def test_only_adapters_and_placeholders_get_gradients() -> None:
    proposer, batch = batch_of("llama")
    proposer.corrected(proposer.rows(batch).placeholders, batch).square().sum().backward()
    trained = dict(proposer.named_parameters())
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in trained.values())
    others = set(proposer.backbone.model.parameters()) - set(trained.values())
    assert others
    assert not any(parameter.requires_grad for parameter in others)


def test_a_fresh_adapter_changes_nothing_and_a_lower_rank_is_embedded_exactly() -> None:
    low, batch = batch_of("llama")
    wide = BlockProposer(tiny_model("llama"), adapter_config().model_copy(update={"rank": 13}), seed=7)
    wide.load(dict(low.named_parameters()))
    with torch.no_grad():
        torch.testing.assert_close(wide.rows(batch).placeholders, low.rows(batch).placeholders, rtol=1e-4, atol=1e-4)
        back = BlockProposer(tiny_model("llama"), low.config, seed=8)
        back.load(dict(wide.named_parameters()))  # of rank 13, but its products use no more than rank 8
        torch.testing.assert_close(back.rows(batch).placeholders, low.rows(batch).placeholders, rtol=1e-4, atol=1e-4)


def test_of_a_higher_rank_the_largest_singular_values_are_taken_over() -> None:
    high, _ = batch_of("llama")
    low = BlockProposer(tiny_model("llama"), adapter_config().model_copy(update={"rank": 3}), seed=7)
    low.load(dict(high.named_parameters()))
    given, found = dict(high.named_parameters()), dict(low.named_parameters())
    for name in (name for name in given if name.endswith("lora_A.weight")):
        partner = name.replace("lora_A", "lora_B")
        u, values, v = torch.linalg.svd(given[partner] @ given[name])
        torch.testing.assert_close(found[partner] @ found[name], (u[:, :3] * values[:3]) @ v[:3], rtol=1e-4, atol=1e-5)
    assert torch.equal(low.placeholder, high.placeholder)


def test_a_fresh_head_changes_nothing_and_a_trained_one_depends_on_the_tokens_before() -> None:
    fresh, batch = tiny_proposer(tiny_model("llama")), batch_of("llama")[1]
    trained = stirred_proposer()
    other = replace(batch, previous=batch.previous.flip(-1))
    with torch.no_grad():
        hidden = fresh.rows(batch).placeholders
        assert torch.equal(fresh.corrected(hidden, batch), hidden)
        corrected = trained.corrected(hidden, batch)
        assert not torch.allclose(corrected, hidden)
        changed = (trained.corrected(hidden, other) != corrected).any(-1)
    assert torch.equal(changed, (other.previous != batch.previous).cummax(-1).values)


def test_foreign_adapters_are_refused() -> None:
    proposer, _ = batch_of("llama")
    tensors = dict(proposer.named_parameters())
    with pytest.raises(CheckpointError, match="lacks"):
        proposer.load({k: v for k, v in tensors.items() if "layers.1" not in k})
    with pytest.raises(CheckpointError, match=r"sequential\.a has shape .* does not fit"):
        tiny_proposer(tiny_model("llama"), sequential=8).load(tensors)


def test_a_head_is_widened_only_where_that_changes_nothing() -> None:
    narrow, batch = stirred_proposer(), batch_of("llama")[1]
    assert narrow.sequential is not None
    width = len(narrow.sequential.a)
    wide = BlockProposer(tiny_model("llama"), adapter_config(sequential=width + 8), seed=7)
    assert narrow.sequential.r.any()
    with pytest.raises(CheckpointError, match=f"width {width} cannot be widened"):
        wide.load(dict(narrow.named_parameters()))
    with torch.no_grad():
        narrow.sequential.r.zero_()
        wide.load(dict(narrow.named_parameters()))
        hidden = narrow.rows(batch).placeholders
        torch.testing.assert_close(wide.corrected(hidden, batch), narrow.corrected(hidden, batch), rtol=1e-4, atol=1e-4)


def test_windows_beyond_the_trained_block_reuse_the_last_placeholder() -> None:
    proposer, _ = batch_of("llama")
    examples = greedy_examples(tiny_model("llama"), 1, length=12)
    wide = lay_out(examples, [[3]], 8)
    narrow = lay_out(examples, [[3]], BLOCK_SIZE)
    with torch.no_grad():
        head, whole = proposer.rows(narrow).placeholders, proposer.rows(wide).placeholders
    torch.testing.assert_close(whole[:, :, : BLOCK_SIZE - 1], head, rtol=1e-4, atol=1e-4)
    assert torch.isfinite(functional.linear(whole, proposer.head)).all()


def test_attention_that_training_would_get_wrong_is_refused() -> None:
    examples = greedy_examples(tiny_model("mistral"), 1)
    proposer = tiny_proposer(tiny_model("mistral"))
    with pytest.raises(UnsupportedModel, match="sliding"):
        proposer.rows(lay_out(examples, [[3]], BLOCK_SIZE))
