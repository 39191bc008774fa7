"""A model shared out among ranks computes what the whole one does."""

import copy
import logging
from collections.abc import Callable, Sequence

import pytest
import torch
from transformers import (
    Glm4Config,
    Glm4ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Olmo2Config,
    Olmo2ForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedModel,
    Starcoder2Config,
    Starcoder2ForCausalLM,
)

from prove_core.errors import UnsupportedModel
from prove_core.model.fuse import fuse_projections
from prove_core.model.parallel import decode, encode
from prove_core.model.probe import probe
from prove_core.model.ranks import Ranks
from prove_core.model.rows import RowMask
from prove_core.model.shard import shard_model
from prove_core.model.shared_head import SharedHead, share_head
from prove_core.model.window import PlaceholderGroup, Window, WindowOutput
from tests.core.model.test_fuse import gate
from tests.core.ranks import on_all_ranks
from tests.core.tiny import _COMMON, FAMILIES, tiny_model, tiny_runner

CPU = torch.device("cpu")
WINDOWS = [
    Window([5, 9, 2, 7], 0, range(4), (PlaceholderGroup(3, 3),), logits=4, targets=(9, 2, 7)),
    Window([11, 3], 0, range(4, 8), logits=1),
]
NEXT = [Window([8], 4, range(4), (PlaceholderGroup(0, 3),), logits=1), Window([1, 1, 4], 2, range(4, 8), logits=3)]

MORE: dict[str, Callable[[], PreTrainedModel]] = {
    "phi3": lambda: Phi3ForCausalLM(Phi3Config(**_COMMON)),
    "olmo2": lambda: Olmo2ForCausalLM(Olmo2Config(**_COMMON)),
    "glm4": lambda: Glm4ForCausalLM(Glm4Config(**_COMMON, head_dim=16)),
    "gpt_neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**_COMMON)),
    "starcoder2": lambda: Starcoder2ForCausalLM(Starcoder2Config(**_COMMON)),
    "mixtral": lambda: MixtralForCausalLM(MixtralConfig(**_COMMON, num_local_experts=2, num_experts_per_tok=1)),
}


def _model(family: str) -> PreTrainedModel:
    if family in FAMILIES:
        return tiny_model(family)
    torch.manual_seed(1)
    return MORE[family]().eval()


def _outputs(model: PreTrainedModel, rows: RowMask | None = None, ranks: Ranks | None = None) -> list[WindowOutput]:
    """Of two passes, the second on the first one's KV; ranks that do not lead only take part."""
    runner = tiny_runner(model, rows=rows)
    outputs: list[WindowOutput] = []
    for windows in (WINDOWS, NEXT):
        if ranks is None or ranks.leads:
            outputs += runner.run(windows).outputs
        else:
            runner.follow(decode(encode(windows)))
    return outputs


def _close(actual: Sequence[WindowOutput], expected: Sequence[WindowOutput]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert (one.argmax, one.drafts) == (other.argmax, other.drafts)
        numbers = [(w.confidences, w.probabilities, w.draft_confidences) for w in (one, other)]
        for a, b in zip(*numbers, strict=True):
            assert a == pytest.approx(b, abs=1e-4)


@pytest.mark.parametrize(
    ("family", "size"),
    [*((family, 2) for family in FAMILIES), *((family, 2) for family in MORE), ("llama", 3), ("qwen3", 4)],
)
def test_shared_out_it_says_the_same(family: str, size: int) -> None:
    model = _model(family)
    expected = _outputs(copy.deepcopy(model))

    def work(ranks: Ranks) -> list[WindowOutput]:
        own = copy.deepcopy(model)
        shard_model(own, ranks, CPU)
        fuse_projections(own)
        return _outputs(own, ranks=ranks)

    _close(on_all_ranks(size, work)[0], expected)


@pytest.mark.parametrize(("size", "shared"), [(2, True), (3, True), (4, True), (5, False)])
def test_the_head_is_computed_by_all_where_the_vocabulary_divides(size: int, shared: bool) -> None:
    base = tiny_model("llama")
    whole = base.get_output_embeddings()
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))

    def work(ranks: Ranks) -> tuple[bool, torch.Tensor]:
        model = copy.deepcopy(base)
        share_head(model, ranks)
        head = model.get_output_embeddings()
        assert torch.equal(head.weight, whole.weight)
        return isinstance(head, SharedHead), head(x).detach()

    for is_shared, logits in on_all_ranks(size, work):
        assert is_shared is shared
        torch.testing.assert_close(logits, whole(x).detach())


@pytest.mark.parametrize("size", [2, 3])
def test_gated_adapters_are_shared_out_with_their_bases(size: int) -> None:
    base = tiny_model("qwen2")

    def gated(ranks: Ranks | None) -> list[WindowOutput]:
        model, rows = copy.deepcopy(base), RowMask()
        gate(model, rows)
        if ranks is not None:
            shard_model(model, ranks, CPU)
        fuse_projections(model)
        return _outputs(model, rows, ranks)

    expected = gated(None)
    assert expected != _outputs(copy.deepcopy(base)), "the adapter does something"
    _close(on_all_ranks(size, gated)[0], expected)


@pytest.mark.parametrize(
    ("size", "heads"),
    [(2, (2, 1)), (3, (4, 2)), (4, (1, 1))],  # shared; whole, as 4 heads do not divide; a KV head for two ranks each
)
def test_each_rank_has_its_own_heads_and_their_kv(size: int, heads: tuple[int, int]) -> None:
    base = tiny_model("llama")

    def work(ranks: Ranks) -> tuple[set[tuple[int, int]], int]:
        model = copy.deepcopy(base)
        shard_model(model, ranks, CPU)
        mlp = model.get_submodule("model.layers.0.mlp.gate_proj").weight
        return {(spec.query_heads, spec.kv_heads) for spec in probe(model)}, len(mlp)

    assert on_all_ranks(size, work) == [({heads}, 96 // size)] * size


def test_what_stays_whole_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    base = tiny_model("llama")
    with caplog.at_level(logging.WARNING):
        on_all_ranks(3, lambda ranks: shard_model(copy.deepcopy(base), ranks, CPU))
    assert [record.getMessage() for record in caplog.records] == [
        "tensor_parallel 3: self_attn of 3 layers stay whole on every rank (4 heads, 2 KV heads)"
    ]


def test_a_model_that_cannot_be_shared_out_is_refused_with_its_numbers() -> None:
    base = tiny_model("llama")
    with pytest.raises(UnsupportedModel, match="among 5 ranks: with 4 heads, 2 KV heads none of its layers divides"):
        on_all_ranks(5, lambda ranks: shard_model(copy.deepcopy(base), ranks, CPU))


def test_a_model_without_a_plan_is_refused() -> None:
    sizes = {"vocab_size": 192, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}
    base = GPT2LMHeadModel(GPT2Config(**sizes)).eval()
    with pytest.raises(UnsupportedModel, match="no plan"):
        on_all_ranks(2, lambda ranks: shard_model(copy.deepcopy(base), ranks, CPU))


def test_a_plan_that_computes_something_else_is_refused() -> None:
    base = tiny_model("llama")

    def work(ranks: Ranks) -> None:
        model = copy.deepcopy(base)
        # what a norm over the whole width would do: it depends on the width that a rank sees
        model.get_submodule("model.layers.1.mlp.act_fn").register_forward_hook(lambda _, __, out: out / out.norm())
        shard_model(model, ranks, CPU)

    with pytest.raises(UnsupportedModel, match="computes something else"):
        on_all_ranks(2, work)
