"""Recorded passes give what eager ones give; every pass finds a shape that holds it, or runs eagerly."""

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from prove_core.attention.flashinfer_backend import FlashInferAttention
from prove_core.kv.storage import KVStorage
from prove_core.model.apply import GatedLinear
from prove_core.model.fuse import fuse_projections
from prove_core.model.graphs import Recorder
from prove_core.model.pack import pack
from prove_core.model.probe import probe
from prove_core.model.rows import RowMask
from prove_core.model.runner import ModelRunner
from prove_core.model.sequential import SequentialHead
from prove_core.model.shapes import PassKind, PassShape, fitting, kind_of, pass_shapes
from prove_core.model.window import PlaceholderGroup, Window, WindowOutput
from tests import flashinfer_reference
from tests.core.model.tape import TapeRecorder

PAGES, PAGE = 96, 4
SHAPES = pass_shapes(32, PassKind, PAGES)
Drawn = tuple[int, int, tuple[int, ...], bool]  # cached, tokens, groups behind the last tokens, a prompt's chunk


def model_of(rows: RowMask) -> PreTrainedModel:
    """Head size 64 as the kernels want it, with a gated adapter."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=128,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=512,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16).eval().requires_grad_(False)
    for layer in model.model.layers:
        for parent, names in ((layer.self_attn, "qkv"), (layer.mlp, ("gate", "up", "down"))):
            for name in names:
                base = getattr(parent, f"{name}_proj")
                a = torch.randn(8, base.in_features).to(torch.bfloat16) * 0.1
                b = torch.randn(base.out_features, 8).to(torch.bfloat16) * 0.1
                setattr(parent, f"{name}_proj", GatedLinear(base, a, b, 1.0, rows))
    return model


def runner_of(
    record: Sequence[PassShape],
    package: Any = flashinfer_reference,
    make_recorder: Callable[[], Recorder] = TapeRecorder,
    device: str = "cpu",
    deterministic: bool = False,
) -> ModelRunner:
    rows = RowMask()
    model = model_of(rows).to(device)
    specs = probe(model)
    fuse_projections(model)
    storage = KVStorage([s.shape for s in specs], pages=PAGES, page_size=PAGE, dtype=torch.bfloat16, device=device)
    head = SequentialHead(128, 16, 4, torch.Generator().manual_seed(1)).to(torch.bfloat16).requires_grad_(False)
    head.o.data.normal_(generator=torch.Generator().manual_seed(2)).mul_(0.05)
    runner = ModelRunner(
        model,
        specs,
        storage,
        FlashInferAttention(storage, specs, package, deterministic=deterministic),
        banned=[95],
        placeholder_id=95,
        placeholder_table=torch.randn(3, 128, generator=torch.Generator().manual_seed(3)) * 0.3,
        rows=rows,
        sequential=head.to(device),
        deterministic=deterministic,
    )
    if record:
        runner.record(record, make_recorder())
    return runner


@functools.cache
def both() -> tuple[ModelRunner, ModelRunner]:
    """A runner that replays and one that does not, alike otherwise."""
    shapes = [s for s in SHAPES if s.rows <= 16 or s.kind is PassKind.PLAIN]
    recorded = runner_of(shapes)
    assert len(recorded._recorded) == len(shapes)
    return recorded, runner_of([])


def windows_of(drawn: Sequence[Drawn], page: int = PAGE) -> list[Window]:
    windows, first = [], 0
    generator = torch.Generator().manual_seed(len(drawn))
    for cached, tokens, sizes, chunk in drawn:
        groups = () if chunk else sizes[:tokens]
        behind = tuple(PlaceholderGroup(tokens - len(groups) + i, n) for i, n in enumerate(groups))
        count = -(-(cached + tokens + sum(groups)) // page)
        ids = torch.randint(90, (tokens,), generator=generator).tolist()
        targets = () if chunk else tuple(ids[1:])
        logits = 0 if chunk else tokens
        windows.append(Window(ids, cached, range(first, first + count), behind, logits=logits, targets=targets))
        first += count
    return windows


DRAWN = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6), st.lists(st.integers(0, 3), max_size=3).map(tuple), st.booleans()),
    min_size=1,
    max_size=5,
)


def alike(one: WindowOutput, other: WindowOutput) -> bool:
    """The same choices, and numbers as near as bf16 products of other shapes are."""
    numbers = zip(one.confidences + one.probabilities, other.confidences + other.probabilities, strict=True)
    same = (one.argmax, one.drafts) == (other.argmax, other.drafts)
    return same and all(abs(a - b) < 0.03 for a, b in numbers)


@given(drawn=DRAWN)
@example(drawn=[(0, 1, (), False)])
@example(drawn=[(4, 1, (3,), False), (0, 2, (), False)])
@example(drawn=[(4, 4, (2, 0, 2), False), (0, 1, (), False), (9, 1, (), False)])
@settings(max_examples=25, deadline=None)
def test_recorded_passes_equal_eager_ones(drawn: Sequence[Drawn]) -> None:
    compare_runners(*both(), windows_of(drawn))


def compare_runners(recorded: ModelRunner, eager: ModelRunner, windows: Sequence[Window]) -> None:
    """The same outputs and the same KV, from the same KV."""
    for pair in zip(recorded._storage.layers, eager._storage.layers, strict=True):
        for ours, theirs in zip(*pair, strict=True):
            ours.copy_(theirs.normal_(generator=torch.Generator(theirs.device).manual_seed(7)))
    outputs = [runner.run(windows).outputs for runner in (recorded, eager)]
    assert all(alike(*pair) for pair in zip(*outputs, strict=True))
    for pair in zip(recorded._storage.layers, eager._storage.layers, strict=True):
        for ours, theirs in zip(*pair, strict=True):
            torch.testing.assert_close(ours[:-1].float(), theirs[:-1].float(), rtol=0.05, atol=0.05)


def test_replaying_runs_no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the tests here prove nothing about CUDA graphs."""
    recorded, eager = both()
    calls: list[str] = []
    for name, runner in (("recorded", recorded), ("eager", eager)):
        forward = runner._model.forward
        monkeypatch.setattr(
            runner._model, "forward", lambda *a, _f=forward, _n=name, **k: (calls.append(_n), _f(*a, **k))[1]
        )
        runner.run(windows_of([(0, 1, (2,), False)]))
    assert calls == ["eager"]


def test_host_reads_cannot_be_recorded(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such passes run eagerly: a line in the log, never an error."""
    runner = runner_of([])
    embed = runner._embed.forward
    monkeypatch.setattr(runner._embed, "forward", lambda ids: embed(ids + (ids.sum().item() > 1e9)))
    with caplog.at_level(logging.WARNING):
        runner.record(SHAPES[:2], TapeRecorder())
    assert len(caplog.records) == 2
    assert not runner._recorded
    assert len(runner.run(windows_of([(0, 1, (), False)])).outputs) == 1


@given(drawn=DRAWN, most=st.integers(1, 300))
@settings(max_examples=200)
def test_every_pass_fits_its_shape_or_runs_eagerly(drawn: Sequence[Drawn], most: int) -> None:
    windows = windows_of(drawn)
    shapes = pass_shapes(most, PassKind, PAGES)
    shape = fitting(windows, shapes, PAGE)
    if shape is None:
        prompt = 2 * sum(w.outputs for w in windows) < sum(w.rows for w in windows)
        assert prompt or not any(s.kind is kind_of(windows) and s.holds(windows, PAGE) for s in shapes)
        return
    packed = pack(
        windows, page_size=PAGE, scratch_page=PAGES, placeholder_id=95, tile=1, device=torch.device("cpu"), shape=shape
    )
    batch = packed.batch
    assert packed.ids.shape == packed.positions.shape == (1, shape.rows)
    assert len(batch.slots) == len(packed.logits) == shape.rows == int(batch.qo_indptr[-1])
    assert len(packed.placeholders) == len(packed.ordinals) == (shape.rows if shape.kind is not PassKind.PLAIN else 0)
    assert len(batch.kv_last_page_len) == shape.windows + 1
    real = sum(w.rows for w in windows)
    assert {int(row) for row in packed.placeholders[sum(w.placeholders for w in windows) :]} <= {shape.rows - 1}
    assert shape.kind is PassKind.PLAIN or real < shape.rows, "the last row is padding"
    assert bool((batch.slots[real:] == PAGES * PAGE).all())
    assert bool(batch.gaps) == any(kind_of([w]) is PassKind.TREE for w in windows)
    room = (batch.kv_indptr.diff() - 1) * PAGE + batch.kv_last_page_len
    assert bool((batch.qo_indptr.diff() <= room).all()), "a window has no room for its own rows"


def test_limits_of_a_shape() -> None:
    one = Window([0], 0, range(1), logits=1)
    shapes = [PassShape(4, 2, PassKind.PLAIN, 2), PassShape(4, 2, PassKind.TREE, 8)]
    assert fitting([one, one], shapes, PAGE) == shapes[0]
    assert fitting([one] * 3, shapes, PAGE) is None, "too many windows"
    assert fitting([Window([0] * 5, 0, range(2), logits=5)], shapes, PAGE) is None, "too many rows"
    assert fitting([Window([0], 8, range(3), logits=1)], shapes, PAGE) is None, "too many pages"
    assert fitting([Window([0] * 4, 0, range(1), logits=1)], shapes, PAGE) is None, "a prompt"
    tree: Callable[[int, int], Window] = lambda rows, start: Window(  # noqa: E731
        [0, 0], start, range(-(-(start + 2 + rows) // PAGE)), (PlaceholderGroup(0, rows),), logits=2, targets=(0,)
    )
    assert fitting([tree(1, 0)], shapes, PAGE) == shapes[1]
    assert fitting([tree(2, 0)], shapes, PAGE) is None, "no padding row left"
    long = [PassShape(8, 1, PassKind.TREE, 10**6)]
    assert fitting([tree(1, 32000)], long, PAGE) == long[0]
    assert fitting([tree(1, 33000)], long, PAGE) is None, "longer than masks"


def test_shapes_come_in_reasonable_number() -> None:
    """Each takes a fraction of a second to record and some memory."""
    assert len(pass_shapes(256, PassKind, 1000)) < 60
    assert pass_shapes(256, [PassKind.PLAIN], 1000)[-1] == PassShape(1, 1, PassKind.PLAIN, 1000)
