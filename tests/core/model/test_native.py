"""Passes in compiled code: what torch computes, with bits that do not depend on company, or torch itself instead."""

import copy
import itertools
import random
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from prove_core.attention.base import LayerSpec
from prove_core.attention.torch_backend import TorchAttention
from prove_core.errors import UnsupportedModel
from prove_core.kv.storage import KVStorage
from prove_core.model.alternatives import LEAST, MOST
from prove_core.model.apply import GatedLinear
from prove_core.model.cache import home
from prove_core.model.fuse import fuse_projections
from prove_core.model.in_use import InUse
from prove_core.model.native import library
from prove_core.model.native.check import disagreement
from prove_core.model.native.choose import native_forward
from prove_core.model.native.forward import NativeForward
from prove_core.model.native.library import NoLibrary
from prove_core.model.native.rows import NativeReader
from prove_core.model.native.structure import parts
from prove_core.model.native.walk import NativeWalk
from prove_core.model.probe import probe
from prove_core.model.recall import Recall
from prove_core.model.refine import Refiner
from prove_core.model.rows import RowMask
from prove_core.model.runner import ModelRunner
from prove_core.model.scores import Asked, Scorer, read_rows
from prove_core.model.sequential import CANDIDATES, SequentialHead
from prove_core.model.sides import readable
from prove_core.model.window import PlaceholderGroup, SidePath, Window, WindowOutput
from prove_core.types import Alternatives
from tests.core.tiny import tiny_model

VOCABULARY = 100  # no whole number of blocks
PAGE_SIZE = 4
LENGTH = 300  # more than two chunks of keys
TOKENS = [random.Random(1).randrange(VOCABULARY) for _ in range(LENGTH)]
PAGES = list(range(0, 200, 2))

COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 96,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 4096,
    "initializer_range": 0.2,
    "tie_word_embeddings": False,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES = {
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**COMMON)),
    "llama3": lambda: LlamaForCausalLM(LlamaConfig(**COMMON, rope_parameters=LLAMA3)),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**{**COMMON, "hidden_size": 192})),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**COMMON)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**COMMON, sliding_window=150)),
}


def compiled() -> None:
    """Tests of compiled code need a compiler."""
    try:
        library.library(home())
    except NoLibrary as reason:
        pytest.skip(str(reason))


def build(family: str) -> PreTrainedModel:
    torch.manual_seed(3)
    model: PreTrainedModel = FAMILIES[family]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "bias" in name:  # not all ones and zeros
                parameter.add_(torch.randn_like(parameter) * 0.2)
    return model.to(torch.bfloat16).eval()


def gate(model: PreTrainedModel, rows: RowMask, rank: int = 12) -> None:
    """Adapters on every projection."""
    for parent in list(model.modules()):
        for name, base in list(parent.named_children()):
            if isinstance(base, nn.Linear) and name.endswith("_proj"):
                a, b = (
                    torch.randn(size).to(base.weight.dtype) * 0.1
                    for size in ((rank, base.in_features), (base.out_features, rank))
                )
                setattr(parent, name, GatedLinear(base, a, b, 1.5, rows))


def runners(family: str, *, gated: bool = False) -> tuple[ModelRunner, ModelRunner]:
    """Of one model: in compiled code, and in torch."""
    rows = RowMask()
    model = build(family)
    if gated:
        gate(model, rows)
    return runners_of(model, rows)


def runners_of(model: PreTrainedModel, rows: RowMask) -> tuple[ModelRunner, ModelRunner]:
    """The same."""
    compiled()
    specs = probe(model)
    fuse_projections(model)
    stores = [
        KVStorage([s.shape for s in specs], pages=220, page_size=PAGE_SIZE, dtype=torch.bfloat16, device="cpu")
        for _ in range(2)
    ]
    native = NativeForward(parts(model, specs), specs, stores[0], home())
    given = {"banned": (), "placeholder_id": 7, "rows": rows}
    return (
        ModelRunner(model, specs, stores[0], native, **given),
        ModelRunner(model, specs, stores[1], TorchAttention(stores[1], specs), **given),
    )


def window(start: int, rows: int, *groups: PlaceholderGroup, pages: Sequence[int] = PAGES) -> Window:
    """Tokens of TOKENS from `start` on."""
    tokens = TOKENS[start : start + rows]
    return Window(tokens, start, pages, groups, logits=rows, targets=tuple(tokens))


def neighbours(count: int) -> list[Window]:
    """Other windows of 1 to 30 rows, with placeholders among them."""
    windows = []
    for i in range(count):
        rows, pages = 1 + 11 * i % 30, list(range(201 - 20 * i, 221 - 20 * i, 2))
        windows.append(window(0, rows, PlaceholderGroup(rows - 1, i % 3), pages=[page | 1 for page in pages]))
    return windows


def probabilities(output: WindowOutput) -> torch.Tensor:
    return torch.tensor((*output.probabilities, *output.confidences, *output.draft_confidences))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gated", [False, True], ids=["stock", "gated"])
def test_what_torch_computes(family: str, gated: bool) -> None:
    ours, theirs = runners(family, gated=gated)
    passes = [
        [window(0, 270)],
        [window(270, 1)],
        [window(271, 5, PlaceholderGroup(1, 3), PlaceholderGroup(4, 7))],
        [*neighbours(4), window(271, 29, PlaceholderGroup(28, 4))],
    ]
    for windows in passes:
        for a, b in zip(ours.run(windows).outputs, theirs.run(windows).outputs, strict=True):
            torch.testing.assert_close(probabilities(a), probabilities(b), rtol=0.1, atol=0.04)


@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral"])
def test_bits_do_not_depend_on_company(family: str) -> None:
    runner, _ = runners(family, gated=True)

    def read(chunk: int, before: int, after: int) -> list[tuple[int, float, float]]:
        rows: list[tuple[int, float, float]] = []
        for start in range(0, LENGTH, chunk):
            own = window(start, min(chunk, LENGTH - start), PlaceholderGroup(0, 2))
            output = runner.run([*neighbours(before), own, *neighbours(after)]).outputs[before]
            rows += zip(output.argmax, output.confidences, output.probabilities, strict=True)
        return rows

    alone = read(1, 0, 0)
    for chunk, before, after in [(7, 0, 0), (12, 0, 1), (13, 3, 2), (64, 0, 3), (LENGTH, 0, 0)]:
        assert read(chunk, before, after) == alone, (chunk, before, after)


def test_bits_do_not_depend_on_threads() -> None:
    runner, _ = runners("llama", gated=True)
    threads, outputs = torch.get_num_threads(), []
    for count in (1, 2, 3, 7):
        torch.set_num_threads(count)
        outputs.append([runner.run([window(0, 9, PlaceholderGroup(8, 3))]).outputs for _ in range(3)])
    torch.set_num_threads(threads)
    assert all(output == outputs[0] for output in outputs)


def test_a_branch_has_the_bits_of_what_it_follows() -> None:
    runner, _ = runners("mistral", gated=True)
    runner.run([window(0, 200)])
    groups = PlaceholderGroup(0, 5), PlaceholderGroup(2, 3), PlaceholderGroup(3, 6)
    (alone,) = runner.run([Window(TOKENS[200:201], 200, PAGES, groups[:1], logits=1)]).outputs
    tree = Window(TOKENS[200:204], 200, PAGES, groups, logits=4, targets=(VOCABULARY - 1,) * 3)
    (grown,) = runner.run([tree]).outputs
    assert (grown.drafts, grown.draft_confidences) == (alone.drafts, alone.draft_confidences)


def test_a_side_path_has_the_bits_of_what_it_stands_for() -> None:
    """Near the end of a span of keys and far from it, at odd and even places, alone and in company."""
    runner, _ = runners("mistral", gated=True)
    runner.run([window(0, 271)])
    assert runner.native is not None
    span = runner.native.side_span
    sides = SidePath(0, (5, 6)), SidePath(0, (7,)), SidePath(2, (8, 9, 10)), SidePath(3, (11,)), SidePath(1, (12,))
    kept = Counter[SidePath]()
    for start in (*range(span - 16, span + 4), *range(200, 204), 2 * span - 7):
        runner.run([window(start, 4)])
        tree = Window(TOKENS[start : start + 4], start, PAGES, (PlaceholderGroup(1, 3),), logits=4, sides=sides)
        read = replace(tree, sides=tuple(readable(tree, span)))
        kept.update(read.sides)
        (grown,) = runner.run([tree]).outputs
        assert [side for side, behind in zip(sides, grown.behind, strict=True) if behind] == list(read.sides)
        for company in ([], neighbours(2)):
            rows = answers(runner, [*company, read])[-read.outputs :]
            assert torch.equal(rows[:4], answers(runner, [replace(tree, groups=(), sides=())]))
            rows = rows[4:]
            for side in read.sides:
                path = [*TOKENS[start : start + 1 + side.after], *side.tokens]
                own, rows = rows[: side.count], rows[side.count :]
                assert torch.equal(own, answers(runner, [Window(path, start, PAGES, logits=side.count)]))
            assert len(rows) == read.placeholders
    assert all(kept[side] > 8 for side in sides), "paths were read"
    assert min(kept.values()) < 25, "and some were not"


@pytest.mark.parametrize("start", range(130, 134))
def test_a_side_path_adds_up_keys_in_the_order_of_what_it_stands_for(start: int) -> None:
    """Values of two tokens are huge and cancel out: whatever is added in between is rounded, the rest is not."""
    model = build("llama")
    attention = model.model.layers[0].self_attn
    with torch.no_grad():
        embedding = model.get_input_embeddings().weight
        embedding[1] = 0
        embedding[:, 0] = 0
        embedding[1, 0] = 1
        embedding[2] = -embedding[1]
        attention.v_proj.weight[:, 0] = 1e6
        attention.k_proj.weight.zero_()  # all keys weigh the same
    runner, _ = runners_of(model, RowMask())
    committed = [token % 90 + 10 for token in TOKENS[: start + 4]]
    for huge in range(start, start + 3):
        tokens = [*committed]
        tokens[start - 2], tokens[huge] = 1, 2
        runner.run([Window(tokens[:start], 0, PAGES)])
        sides = tuple(SidePath(after, (3, 4, 5)) for after in range(3))
        tree = Window(tokens[start:], start, PAGES, logits=4, sides=sides)
        found = answers(runner, [tree])[4:].split(3)
        for side, own in zip(sides, found, strict=True):
            path = [*tokens[start : start + 1 + side.after], *side.tokens]
            assert torch.equal(own, answers(runner, [Window(path, start, PAGES, logits=3)]))


def answers(runner: ModelRunner, windows: Sequence[Window]) -> torch.Tensor:
    """The logits of all rows that want some."""
    return runner._prepared(windows)()[0].clone()


def test_far_positions_have_their_rotations() -> None:
    ours, theirs = runners("llama3")
    for windows in ([window(0, 8)], [Window(TOKENS[:3], 2500, PAGES * 20, logits=3, targets=tuple(TOKENS[:3]))]):
        a, b = ours.run(windows).outputs[0], theirs.run(windows).outputs[0]
    torch.testing.assert_close(probabilities(a), probabilities(b), rtol=0.1, atol=0.04)


def prepared(model: PreTrainedModel) -> tuple[PreTrainedModel, list[LayerSpec], KVStorage]:
    specs = probe(model)
    fuse_projections(model)
    shapes = [spec.shape for spec in specs]
    return model, specs, KVStorage(shapes, pages=16, page_size=PAGE_SIZE, dtype=model.dtype, device="cpu")


def granite() -> PreTrainedModel:
    """Llama's modules, other arithmetic."""
    multipliers = {"residual_multiplier": 0.5, "embedding_multiplier": 1.0, "logits_scaling": 1.0}
    return GraniteForCausalLM(GraniteConfig(**COMMON, **multipliers)).to(torch.bfloat16).eval()


class Scaled(nn.Embedding):
    """Embeddings that are more than looked up."""


def scaled() -> PreTrainedModel:
    model = build("llama")
    model.get_input_embeddings().__class__ = Scaled
    return model


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (granite, "differ by"),
        (scaled, "not merely looked up"),
        (lambda: tiny_model("gemma2", dtype=torch.bfloat16), "16 wide"),
        (lambda: tiny_model("qwen3", dtype=torch.bfloat16), "24 wide"),
        (lambda: build("llama").float(), "not bfloat16"),
    ],
)
def test_other_models_run_on_torch(
    make: Callable[[], PreTrainedModel], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    compiled()
    model, specs, storage = prepared(make())
    assert native_forward(model, specs, storage, RowMask(), "auto") is None
    assert (why in caplog.text) == (model.dtype is torch.bfloat16)  # in float32 nobody expects it
    with pytest.raises(UnsupportedModel, match=why):
        native_forward(model, specs, storage, RowMask(), "native")


def test_without_a_compiler_torch_runs(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    library.library.cache_clear()
    monkeypatch.setattr(library.shutil, "which", lambda _: None)
    model, specs, storage = prepared(build("llama"))
    weight = model.model.layers[0].mlp.down_proj.weight.clone()
    assert native_forward(model, specs, storage, RowMask(), "auto") is None
    assert "no C++ compiler" in caplog.text
    assert torch.equal(model.model.layers[0].mlp.down_proj.weight, weight)
    library.library.cache_clear()


def test_a_compiler_that_fails_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\n[ $1 = --version ] || { echo no room >&2; exit 1; }\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(NoLibrary, match="no room"):
        library.library(tmp_path)
    assert not list(tmp_path.glob("native/*"))


def test_the_portable_code_computes_the_same() -> None:
    compiled()
    rows = RowMask()
    model = build("qwen2")
    gate(model, rows)
    model, specs, storage = prepared(model)
    taken = parts(model, specs)
    for portable in (False, True):
        forward = NativeForward(taken, specs, storage, home(), portable=portable)
        assert disagreement(forward, model, specs, storage, rows) < 0.05


def test_torch_on_request() -> None:
    model, specs, storage = prepared(build("llama"))
    assert native_forward(model, specs, storage, RowMask(), "torch") is None


def test_a_taken_model_keeps_no_second_copy_of_its_weights() -> None:
    compiled()
    model, specs, storage = prepared(build("llama"))
    assert native_forward(copy.deepcopy(model), specs, storage, RowMask(), "native") is not None
    assert native_forward(model, specs, storage, RowMask(), "auto") is not None
    real = [name for name, parameter in model.named_parameters() if parameter.ndim > 1 and not parameter.is_meta]
    assert sorted(real) == ["lm_head.weight", "model.embed_tokens.weight"]


def test_passes_of_every_small_size() -> None:
    ours, theirs = runners("llama")
    for rows, placeholders in itertools.product(range(1, 15), (0, 1, 5)):
        windows = [window(0, rows, PlaceholderGroup(rows - 1, placeholders))]
        a, b = ours.run(windows).outputs[0], theirs.run(windows).outputs[0]
        torch.testing.assert_close(probabilities(a), probabilities(b), rtol=0.1, atol=0.04)


def test_rows_are_read_as_torch_reads_them() -> None:
    compiled()
    generator = torch.Generator().manual_seed(0)
    for width in (5, 16, 100, 4099):
        logits = torch.randn(6, width, generator=generator) * 5
        logits[1, 0] = logits[1, 1] = 30.0  # a tie: the first
        logits[2, 3:] = -torch.inf
        read = NativeReader(library.library(home()))
        where, ids = [*range(6)] * 5, [token for token in range(5) for _ in range(6)]
        asked = Asked([*range(6)], [True] * 6, where, ids, {4: 2})
        ours, theirs = read(logits, asked), read_rows(logits, asked)
        assert ours.best == theirs.best
        for found, expected in ((ours.confidences, theirs.confidences), (ours.probabilities, theirs.probabilities)):
            torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-5, atol=1e-7)
        some = read(logits, Asked([1, 3, 5], [False, True, False], [3], [2]))
        assert [some.best[row] for row in (1, 3, 5)] == [ours.best[row] for row in (1, 3, 5)]
        assert (some.confidences[3], some.probabilities) == (ours.confidences[3], [ours.probabilities[2 * 6 + 3]])


def head(hidden: int, width: int, dtype: torch.dtype) -> SequentialHead:
    made = SequentialHead(hidden, width, 4, torch.Generator().manual_seed(0))
    with torch.no_grad():
        for name in ("r", "o", "position"):
            weight = getattr(made, name)
            weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * 0.2)
    return made.to(dtype).requires_grad_(False)


def assert_alternatives(ours: Alternatives, theirs: Alternatives, confidences: tuple[float, ...]) -> None:
    """The same ways to begin, as likely, where they are likely enough; ours may go on further."""
    starts = [(other.accepted, other.tokens[0]) for other in ours]
    assert len(set(starts)) == len(starts)
    assert sum(len(other.tokens) for other in ours) <= MOST
    found = {start: other.confidences[0] for start, other in zip(starts, ours, strict=True)}
    for other in theirs:
        if len(ours) < len(theirs) or prod(confidences[: other.accepted]) * other.confidences[0] < 2 * LEAST:
            continue
        assert found[other.accepted, other.tokens[0]] == pytest.approx(other.confidences[0], abs=0.05)


@pytest.mark.parametrize("recall", [None, Recall((2.0, 1.0, 3.0), 1.5)])
@pytest.mark.parametrize(("hidden", "width", "vocabulary"), [(64, 32, 200), (96, 160, 100), (192, 224, 1000)])
def test_the_head_walks_as_in_torch(hidden: int, width: int, vocabulary: int, recall: Recall | None) -> None:
    """In blocks that end early and go on beyond the trained places; a block's bits do not depend on the others."""
    compiled()
    generator = torch.Generator().manual_seed(2)
    made, rows = head(hidden, width, torch.bfloat16), 14
    embedding = nn.Embedding(vocabulary, hidden, dtype=torch.bfloat16)
    output = torch.randn(vocabulary, hidden, generator=generator).to(torch.bfloat16)
    states = torch.randn(rows, hidden, generator=generator).to(torch.bfloat16)
    logits = (states @ output.T).float()
    logits[:, :20] = -torch.inf
    windows = [
        Window([3, 4], 0, PAGES, (PlaceholderGroup(1, 6),), logits=2),
        Window([5], 60, PAGES, (PlaceholderGroup(0, 2),), logits=1, before=tuple(range(60, 90)) * 2),
        Window([9], 0, PAGES, (PlaceholderGroup(0, 2),), logits=1),
    ]
    outputs = Scorer((), vocabulary=vocabulary, device=torch.device("cpu")).score(logits, windows)
    walk = NativeWalk(library.library(home()), made, embedding.weight, output, recall)
    with torch.inference_mode():
        ours = Refiner(made, embedding, output, alone=False, recall=recall, walk=walk).refine(
            states, logits, windows, outputs
        )
        theirs = Refiner(made, embedding, output, alone=False, recall=recall).refine(states, logits, windows, outputs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.drafts == b.drafts
        assert a.draft_confidences == pytest.approx(b.draft_confidences, abs=0.05)
        assert_alternatives(a.alternatives, b.alternatives, a.draft_confidences)
    known = array("i", (*windows[1].before, 5, outputs[1].argmax[0]))
    (alone,) = walk(states[8:11], logits[8:11], [InUse(0, 1, 2, 0, known)])
    assert tuple(alone.ids) == ours[1].drafts
    assert alone.alternatives == ours[1].alternatives


def plain_walk(vocabulary: int, *, portable: bool = False) -> NativeWalk:
    """A fresh head, which changes nothing: scores are the rows' own logits."""
    compiled()
    made = SequentialHead(64, 32, 4).to(torch.bfloat16).requires_grad_(False)
    table = torch.randn(vocabulary, 64, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    return NativeWalk(library.library(home(), portable=portable), made, table, table)


@pytest.mark.parametrize("portable", [False, True], ids=["native", "portable"])
@pytest.mark.parametrize("vocabulary", [7, 32, 33, 250, 256, 300, 1037])
def test_the_leading_candidates_of_rows_of_any_size(vocabulary: int, portable: bool) -> None:
    logits = torch.randn(9, vocabulary, generator=torch.Generator().manual_seed(1)) * 3
    logits[1] = logits[1].sort().values
    logits[2] = logits[2].sort(descending=True).values
    logits[3, 5:] = -torch.inf
    states = torch.zeros(9, 64, dtype=torch.bfloat16)
    (walked,) = plain_walk(vocabulary, portable=portable)(states, logits, [InUse(0, 0, 9, 0, array("i", (1,)))])
    ids, probabilities = walked.ids, walked.confidences
    values = logits.topk(min(CANDIDATES, vocabulary)).values
    assert ids == logits.argmax(-1).tolist()
    assert probabilities == pytest.approx(torch.softmax(values, -1)[:, 0].tolist(), rel=1e-5)


def test_of_equal_candidates_the_first_is_chosen() -> None:
    vocabulary = 1037
    logits = torch.zeros(5, vocabulary)
    for row, places in enumerate([(1036, 700), (31, 32), (255, 256, 257), (287, 288, 544), (1023, 1024)]):
        logits[row, list(places)] = 2.0
    states = torch.zeros(5, 64, dtype=torch.bfloat16)
    (walked,) = plain_walk(vocabulary)(states, logits, [InUse(0, 0, 5, 0, array("i", (1,)))])
    ids = walked.ids
    assert ids == [700, 31, 255, 287, 1023]
    assert NativeReader(library.library(home()))(logits, Asked([*range(5)], [False] * 5)).best == ids


def test_a_long_context_is_recalled_whatever_its_length() -> None:
    """Its first tokens, its last ones, and those between: matches are looked for many at a time."""
    compiled()
    made, vocabulary = head(64, 32, torch.bfloat16), 200
    table = torch.zeros(vocabulary, 64, dtype=torch.bfloat16)
    walk = NativeWalk(library.library(home()), made, table, table, Recall((5.0,), 0.0))
    states = torch.zeros(1, 64, dtype=torch.bfloat16)
    logits = -torch.arange(vocabulary, dtype=torch.float32)[None] / 100
    for length in range(3, 40):
        for place in range(length - 2):
            context = array("i", [100] * length)
            context[place], context[place + 1], context[-1] = 150, 9, 150
            (walked,) = walk(states, logits, [InUse(0, 0, 1, 0, context)])
            ids = walked.ids
            assert ids == [9], (length, place)


def test_heads_of_other_sizes_walk_in_torch() -> None:
    output = torch.zeros(10, 64, dtype=torch.bfloat16)
    assert NativeWalk.can(head(64, 32, torch.bfloat16), output)
    assert not NativeWalk.can(head(64, 20, torch.bfloat16), output)
    assert not NativeWalk.can(head(64, 32, torch.float32), output)
