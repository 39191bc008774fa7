"""Deterministic mode: a row's result has the same bits however it arrives and whatever shares its pass."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from transformers import PreTrainedModel

from prove_core.attention.torch_backend import TorchAttention
from prove_core.errors import UnsupportedModel
from prove_core.model.apply import GatedLinear
from prove_core.model.probe import probe
from prove_core.model.rows import RowMask
from prove_core.model.runner import ModelRunner
from prove_core.model.window import PlaceholderGroup, SidePath, Window
from tests.core.model.test_probe import build
from tests.core.tiny import FAMILIES, VOCABULARY, tiny_model, tiny_runner

LENGTH = 150
TOKENS = torch.randint(0, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(1)).tolist()
PAGES = list(range(0, 80, 2))
Row = tuple[int, float, float]


def neighbours(count: int) -> list[Window]:
    """Windows of 1 to 30 rows on other pages."""
    windows = []
    for i in range(count):
        tokens, pages = TOKENS[: 1 + 11 * i % 30], list(range(100 + 10 * i, 110 + 10 * i))
        groups = tuple(PlaceholderGroup(len(tokens) - 1 - k, i % 3) for k in range(min(2, len(tokens))))
        windows.append(Window(tokens, 0, pages, groups, logits=1))
    return windows


def read_in_chunks(runner: ModelRunner, chunk: int, *, before: int = 0, after: int = 0) -> Iterator[Row]:
    """Argmax, confidence and a token's probability at every position of TOKENS, fed `chunk` at a time."""
    for start in range(0, LENGTH, chunk):
        part = TOKENS[start : start + chunk]
        window = Window(part, start, PAGES, logits=len(part), targets=tuple(part))
        output = runner.run([*neighbours(before), window, *neighbours(after)]).outputs[before]
        yield from zip(output.argmax, output.confidences, output.probabilities, strict=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_chunks_and_neighbours_change_no_bit(family: str, dtype: torch.dtype) -> None:
    runner = tiny_runner(tiny_model(family, dtype=dtype), pages=200, deterministic=True)
    alone = list(read_in_chunks(runner, 1))
    assert len({row[0] for row in alone}) > 10
    for chunk, before, after in [(7, 0, 0), (64, 0, 0), (LENGTH, 0, 0), (13, 5, 2), (64, 0, 3)]:
        assert list(read_in_chunks(runner, chunk, before=before, after=after)) == alone, (chunk, before, after)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_verify_rows_equal_decode_rows_after_a_rejection(dtype: torch.dtype) -> None:
    runner = tiny_runner(tiny_model(dtype=dtype), pages=200, deterministic=True)
    decoded = list(read_in_chunks(runner, 1))
    runner.run([Window(TOKENS[:100], 0, PAGES)])
    rejected = Window([*TOKENS[100:103], 0, 0, 0, 0], 100, PAGES, (PlaceholderGroup(6, 3),), logits=1)
    runner.run([rejected, *neighbours(3)])
    block = TOKENS[103:111]
    (output, *_) = runner.run([Window(block, 103, PAGES, logits=8, targets=tuple(block)), *neighbours(2)]).outputs
    assert list(zip(output.argmax, output.confidences, output.probabilities, strict=True)) == decoded[103:111]


def gated(dtype: torch.dtype, rows: RowMask) -> PreTrainedModel:
    """A tiny model with random gated adapters."""
    model = tiny_model(dtype=dtype)
    generator = torch.Generator().manual_seed(5)
    for layer in model.model.layers:
        for parent, name in ((layer.self_attn, "q_proj"), (layer.mlp, "down_proj")):
            base = getattr(parent, name)
            a, b = (
                torch.randn(*size, generator=generator).to(dtype) * 0.1
                for size in ((5, base.in_features), (base.out_features, 5))
            )
            setattr(parent, name, GatedLinear(base, a, b, 2.0, rows))
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gated_placeholder_rows(dtype: torch.dtype) -> None:
    rows = RowMask()
    runner = tiny_runner(gated(dtype, rows), pages=200, rows=rows, deterministic=True)
    window = Window(TOKENS[:9], 0, PAGES, (PlaceholderGroup(8, 7),), logits=1)
    (alone,) = runner.run([window]).outputs
    assert runner.run([*neighbours(4), window, *neighbours(5)]).outputs[4] == alone
    shorter = Window(TOKENS[:9], 0, PAGES, (PlaceholderGroup(8, 3),), logits=1)
    (prefix,) = runner.run([shorter]).outputs
    assert (prefix.argmax, prefix.confidences) == (alone.argmax, alone.confidences)
    assert (prefix.drafts, prefix.draft_confidences) == (alone.drafts[:3], alone.draft_confidences[:3])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tree_of_drafts_changes_no_bit_of_tokens(family: str) -> None:
    """A fused window: tokens to verify, and placeholders behind three of them."""
    runner = tiny_runner(tiny_model(family, dtype=torch.bfloat16), pages=200, deterministic=True)
    plain = Window(TOKENS[:9], 0, PAGES, logits=6, targets=tuple(TOKENS[4:9]))
    tree = replace(
        plain,
        groups=(PlaceholderGroup(3, 4), PlaceholderGroup(5, 7), PlaceholderGroup(8, 2)),
        sides=(SidePath(4, (3, 4)), SidePath(6, (5,))),
    )
    (expected,) = runner.run([plain]).outputs
    for windows in ([tree], [*neighbours(3), tree]):
        output = runner.run(windows).outputs[-1]
        assert (output.argmax, output.confidences, output.probabilities) == (
            expected.argmax,
            expected.confidences,
            expected.probabilities,
        )


@torch.inference_mode()
def answers(runner: ModelRunner, windows: list[Window]) -> torch.Tensor:
    """The logits of all rows that want some."""
    logits = runner._prepared(windows)()[0]
    return logits[: sum(window.outputs for window in windows)].clone()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_side_path_has_the_bits_of_what_it_stands_for(family: str) -> None:
    """What the model says along it is what it says where its tokens have been committed."""
    runner = tiny_runner(tiny_model(family, dtype=torch.bfloat16), pages=200, deterministic=True)
    sides = tuple(SidePath(after, tuple(TOKENS[50 + after : 50 + after + 1 + after % 3])) for after in (3, 4, 4, 7, 8))
    window = Window(TOKENS[:9], 0, PAGES, (PlaceholderGroup(8, 2),), 6, tuple(TOKENS[4:9]), sides=sides)
    for company in ([], neighbours(3)):
        rows = answers(runner, [*company, window])[-window.outputs :][window.logits :]
        for side in sides:
            path = [*TOKENS[: side.after + 1], *side.tokens]
            said = answers(runner, [Window(path, 0, range(100, 110), logits=side.count)])
            own, rows = rows[: side.count], rows[side.count :]
            assert torch.equal(own, said[: side.count])


def test_equals_the_ordinary_mode_but_for_rounding() -> None:
    exact = read_in_chunks(tiny_runner(tiny_model(), pages=200, deterministic=True), 50)
    plain = read_in_chunks(tiny_runner(tiny_model(), pages=200), 50)
    for a, b in zip(exact, plain, strict=True):
        assert a == pytest.approx(b, rel=1e-3, abs=1e-6)


def test_refuses_products_outside_linears() -> None:
    for kind, changes in [("gpt2", {"n_embd": 32, "n_head": 4, "n_layer": 2}), ("mixtral", {"num_local_experts": 2})]:
        with pytest.raises(UnsupportedModel, match="outside Linear layers"):
            tiny_runner(build(kind, **changes), deterministic=True)


def test_refuses_logits_that_threads_would_cut() -> None:
    odd = build("gemma2", vocab_size=99, head_dim=8, final_logit_softcapping=8.0)
    with pytest.raises(UnsupportedModel, match="threads"):
        tiny_runner(odd, placeholder_id=3, deterministic=True)


def test_refuses_kernels_that_depend_on_the_place_in_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    linear = torch.nn.functional.linear

    def uneven(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        out = linear(x, weight, bias)
        out[..., -1, :] *= 1 + 1e-6
        return out

    model = tiny_model()
    storage, specs = tiny_runner(model)._storage, probe(model)
    backend = TorchAttention(storage, specs)
    monkeypatch.setattr(torch.nn.functional, "linear", uneven)
    with pytest.raises(UnsupportedModel, match="place in its tile"):
        ModelRunner(model, specs, storage, backend, banned=(), placeholder_id=None, deterministic=True)
