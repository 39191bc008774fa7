from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from prove_core.errors import CheckpointError, UnsupportedModel
from prove_core.training.layout import BlockBatch, lay_out
from prove_core.training.proposer import BlockProposer
from tests.core.tiny import tiny_model
from tests.core.training.examples import BLOCK_SIZE, greedy_examples, stirred_proposer, tiny_proposer

GATEABLE = ["llama", "qwen2", "qwen3"]


def batch_of(family: str) -> tuple[BlockProposer, BlockBatch]:
    examples = greedy_examples(tiny_model(family), 3, length=9)
    return stirred_proposer(family), lay_out(examples, [[3, 7], [4], [5, 6, 9]], BLOCK_SIZE)


@pytest.mark.parametrize("family", GATEABLE)
def test_a_block_in_a_batch_equals_the_window_of_inference(family: str) -> None:
    """One block at a time, as a plain causal pass over KV of the stock model: what an engine computes."""
    proposer, batch = batch_of(family)
    hidden = proposer.hidden(batch)
    model = proposer._model
    for row, block, anchor in [(0, 0, 3), (0, 1, 7), (1, 0, 4), (2, 2, 9)]:
        model.config._attn_implementation = "eager"
        with torch.no_grad():
            context = model(batch.tokens[row : row + 1, : anchor + 1], use_cache=True)
            with proposer._gate.opened():
                window = model.get_decoder()(
                    inputs_embeds=proposer.placeholder[None],
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
    context = proposer.context(batch)
    for layer, keys in enumerate(context.keys):
        assert torch.equal(keys, expected.layers[layer].keys)
        assert torch.equal(context.values[layer], expected.layers[layer].values)


def test_only_adapters_and_placeholders_get_gradients() -> None:
    proposer, batch = batch_of("llama")
    proposer.corrected(proposer.hidden(batch), batch).square().sum().backward()
    trained = dict(proposer.named_parameters())
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in trained.values())
    others = set(proposer._model.parameters()) - set(trained.values())
    assert others
    assert not any(parameter.requires_grad for parameter in others)


def test_a_fresh_adapter_changes_nothing_and_a_lower_rank_is_embedded_exactly() -> None:
    low, batch = batch_of("llama")
    wide = BlockProposer(tiny_model("llama"), block_size=BLOCK_SIZE, rank=13, scale=2.0, seed=7, sequential=16)
    wide.load(dict(low.named_parameters()))
    with torch.no_grad():
        torch.testing.assert_close(wide.hidden(batch), low.hidden(batch), rtol=1e-4, atol=1e-4)


def test_a_fresh_head_changes_nothing_and_a_trained_one_depends_on_the_token_before() -> None:
    fresh, batch = tiny_proposer(tiny_model("llama")), batch_of("llama")[1]
    trained = stirred_proposer()
    other = replace(batch, previous=batch.previous.flip(-1))
    with torch.no_grad():
        hidden = fresh.hidden(batch)
        assert torch.equal(fresh.corrected(hidden, batch), hidden)
        corrected = trained.corrected(hidden, batch)
        assert not torch.allclose(corrected, hidden)
        changed = (trained.corrected(hidden, other) != corrected).any(-1)
    assert torch.equal(changed, other.previous != batch.previous)


def test_foreign_adapters_are_refused() -> None:
    proposer, _ = batch_of("llama")
    tensors = dict(proposer.named_parameters())
    with pytest.raises(CheckpointError, match="lacks"):
        proposer.load({k: v for k, v in tensors.items() if "layers.1" not in k})
    narrow = BlockProposer(tiny_model("llama"), block_size=BLOCK_SIZE, rank=2, scale=2.0, seed=0)
    with pytest.raises(CheckpointError, match="does not fit"):
        narrow.load(tensors)


def test_windows_beyond_the_trained_block_reuse_the_last_placeholder() -> None:
    proposer, _ = batch_of("llama")
    examples = greedy_examples(tiny_model("llama"), 1, length=12)
    wide = lay_out(examples, [[3]], 8)
    narrow = lay_out(examples, [[3]], BLOCK_SIZE)
    with torch.no_grad():
        head, whole = proposer.hidden(narrow), proposer.hidden(wide)
    torch.testing.assert_close(whole[:, :, : BLOCK_SIZE - 1], head, rtol=1e-4, atol=1e-4)
    assert torch.isfinite(functional.linear(whole, proposer.head)).all()


def test_attention_that_training_would_get_wrong_is_refused() -> None:
    examples = greedy_examples(tiny_model("mistral"), 1)
    proposer = tiny_proposer(tiny_model("mistral"))
    with pytest.raises(UnsupportedModel, match="sliding"):
        proposer.hidden(lay_out(examples, [[3]], BLOCK_SIZE))
