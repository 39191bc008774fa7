"""`prove bench engine`: its arithmetic, what it runs, and that it runs. What it measures decides no test."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from prove_core.attention.base import LayerSpec
from prove_core.config import EngineConfig, ModelConfig
from prove_core.engine.build import model_runner
from prove_core.model.apply import GatedLinear
from prove_core.model.fuse import fuse_projections
from prove_core.model.loader import load
from prove_core.model.packed import PackedLinear
from prove_core.model.probe import probe
from prove_core.model.progress import SILENT
from prove_core.model.rows import RowMask
from prove_core.types import DecodingParams, Limits, Mode, Role
from services.benchmarks.alternate import alternate, paired_ratio
from services.benchmarks.decoding import one_by_one
from services.benchmarks.engine import time_passes
from services.benchmarks.floors import MachineLimits, ModelSize, PassSize, model_size
from services.benchmarks.pass_figures import pass_figures, pass_ratios
from services.benchmarks.passes import MOST_ROWS, fill, products, products_alone, shapes
from services.benchmarks.peer import Peer
from services.benchmarks.prompts import rendered, text_engine
from services.cli.main import app
from tests.core.tiny import PAGE_SIZE, VOCABULARY, tiny_model, tiny_runner
from tests.services.cli.chat_model import save_chat_model

LAYER = LayerSpec(index=0, query_heads=4, kv_heads=2, head_dim=8, value_dim=8, scaling=1.0)
SLIDING = LayerSpec(index=1, query_heads=4, kv_heads=2, head_dim=8, value_dim=8, scaling=1.0, window=10)
SIZE = ModelSize(body=1000, head=200, adapter=30, width=2, layers=(LAYER, SLIDING))


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_chat_model(tmp_path_factory.mktemp("model")))


def test_cases_take_turns_and_each_begins_in_its_turn() -> None:
    seen: list[str] = []

    def case(name: str, work: int) -> int:
        seen.append(name)
        return work * 10

    cases = {name: (lambda work, name=name: case(name, work)) for name in "abc"}
    assert alternate(cases, [1, 2, 3, 4]) == {name: [10, 20, 30, 40] for name in "abc"}
    assert "".join(seen) == "abcbcacababc"


@given(
    st.lists(st.tuples(st.floats(1, 10), st.floats(1, 10)), min_size=1, max_size=9),
    st.lists(st.floats(0.5, 50), min_size=9, max_size=9),
)
def test_drift_of_the_machine_leaves_a_ratio_as_it_is(pairs: list[tuple[float, float]], drift: list[float]) -> None:
    ours, theirs = [a for a, _ in pairs], [b for _, b in pairs]
    slowed = [[value * factor for value, factor in zip(each, drift, strict=False)] for each in (ours, theirs)]
    assert paired_ratio(*slowed) == pytest.approx(paired_ratio(ours, theirs))


def test_bytes_and_operations_of_a_pass() -> None:
    """By hand: 2 bytes a weight; K and V of 2 heads x 8 numbers per token seen; 2 operations a weight and row."""
    plain, proposing = PassSize(4, 0, 100), PassSize(4, 3, 100)
    assert SIZE.bytes_read(plain) == 2 * (1200 + 2 * 16 * (100 + 10))
    assert SIZE.bytes_read(proposing) == SIZE.bytes_read(plain) + 2 * 30
    assert SIZE.flops(plain) == 2 * (1200 * 4 + 4 * 4 * 16 * (100 + 10))
    assert SIZE.flops(proposing) == SIZE.flops(plain) + 2 * 30 * 3


def test_a_floor_is_the_tighter_limit() -> None:
    size = PassSize(4, 0, 100)
    read, computed = SIZE.bytes_read(size), SIZE.flops(size)
    assert SIZE.floor(MachineLimits(bandwidth=1.0, flops=1e9), size) == read
    assert SIZE.floor(MachineLimits(bandwidth=1e9, flops=1.0), size) == computed


@pytest.mark.parametrize("tied", [False, True])
def test_a_model_s_weights_are_counted_once(tied: bool) -> None:
    model = tiny_model()
    if tied:
        model.lm_head.weight = model.model.embed_tokens.weight
    layer = model.model.layers[0].mlp
    layer.up_proj = GatedLinear(layer.up_proj, torch.ones(16, 64), torch.ones(96, 16), 1.0, RowMask())
    size = model_size(model, probe(model))
    assert size.head == VOCABULARY * 64
    assert size.adapter == 16 * (64 + 96)
    assert size.body == 3 * (64 * (64 + 64) + 64 * (32 + 32) + 3 * 64 * 96)
    assert size.width == 4


def test_products_are_all_of_the_model_s_weights(chat_model: str) -> None:
    """Before and after an engine fuses and packs them: nothing is left out or timed twice."""
    config = EngineConfig(model=ModelConfig(checkpoint=chat_model, dtype="bfloat16", device="cpu", kernels="torch"))
    loaded = load(config.model)
    size = model_size(loaded.model, probe(loaded.model))
    model_runner(config, loaded)
    found = list(products(loaded.model))
    assert {type(product) for product in found} <= {torch.nn.Linear, PackedLinear}
    assert sum(product.in_features * product.out_features for product in found) == size.body + size.head


def test_products_include_an_adapter_where_there_are_placeholders() -> None:
    model = tiny_model()
    rows = RowMask()
    layer = model.model.layers[0].mlp
    for name in ("gate_proj", "up_proj"):
        gated = GatedLinear(getattr(layer, name), torch.ones(16, 64), torch.ones(96, 16), 1.0, rows)
        setattr(layer, name, gated)
    fuse_projections(model)
    found = list(products(model))
    (joint,) = [product for product in found if isinstance(product, GatedLinear)]
    seen: list[int] = []
    joint.lora_a.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    for placeholders in (0, 3):
        products_alone(model, rows, PassSize(5, placeholders, 0))()
    assert seen == [3]


def test_every_shape_runs_and_proposes_what_it_should() -> None:
    runner = tiny_runner(tiny_model())
    ids = tuple(index % VOCABULARY for index in range(40 + MOST_ROWS))
    pages = range(-(-len(ids) // PAGE_SIZE))
    fill(runner, ids, 40, pages)
    chosen = shapes(proposes=True)
    for name, shape in chosen.items():
        window = shape.window(ids, 40, pages)
        size = shape.size(40)
        assert (window.rows, window.placeholders, window.outputs) == (size.rows, size.placeholders, size.rows)
        (output,) = runner.run([window]).outputs
        assert len(output.argmax) == shape.tokens
        if name.startswith("propose"):
            assert len(output.drafts) == size.placeholders == int(name.removeprefix("propose")) - 1
        elif name.startswith("fused"):
            assert size.rows == int(name.removeprefix("fused"))
            assert len(shape.groups) > 1
        else:
            assert not size.placeholders
    assert [name for name in shapes(proposes=False) if name not in chosen or chosen[name].groups] == []


def test_figures_and_ratios_of_passes() -> None:
    limits = MachineLimits(bandwidth=1e9, flops=1e15)
    passes = {name: PassSize(rows, 0, 0) for name, rows in (("ar", 1), ("window8", 8), ("propose8", 8))}
    samples = {
        f"{name}_{part}_ms": [base, base, 9 * base]
        for name, base in (("ar", 2.0), ("window8", 3.0), ("propose8", 5.0))
        for part in ("pass", "products")
    }
    figures = pass_figures(samples, SIZE, limits, passes)
    assert (figures["ar_pass_ms"], figures["placeholder_extra_ms"]) == (2.0, 2.0)
    ratios = pass_ratios(samples, SIZE, limits, passes)
    assert ratios["window8_over_ar"] == 1.5
    assert ratios["ar_over_products"] == 1.0
    floor = 2 * 1200 / 1e9 * 1e3
    assert figures["window8_floor_ms"] == pytest.approx(floor)
    assert ratios["ar_over_bandwidth_floor"] == ratios["ar_over_floor"] == pytest.approx(2.0 / floor)


def test_passes_of_a_tiny_model_are_timed_by_an_engine_s_runner(chat_model: str) -> None:
    threads = torch.get_num_threads()
    passes = time_passes(ModelConfig(checkpoint=chat_model, dtype="float32", device="cpu"), 20, 2, SILENT)
    assert torch.get_num_threads() == threads
    assert set(passes.samples) == {f"{name}_{part}_ms" for name in passes.sizes for part in ("pass", "products")}
    assert all(len(values) == 2 and min(values) > 0 for values in passes.samples.values())


def test_the_peer_decodes_the_same_model(chat_model: str) -> None:
    """Also to a stop id, which neither counts."""
    model = ModelConfig(checkpoint=chat_model, dtype="float32", device="cpu")
    peer = Peer(model, 1, SILENT)
    with text_engine(model, tokens=512, name="test", progress=SILENT) as built:
        (prompt,) = rendered(built.info, ["how far?"])
        engines = {Role.PROPOSER: built.engine}
        free = one_by_one(engines, [(prompt, Limits(12))], DecodingParams(Mode.AR)).outputs[0]
        assert peer.generate(prompt, Limits(12)) == free
        stopped = Limits(12, frozenset({free[5]}))
        expected = free[: free.index(free[5])]
        assert peer.generate(prompt, stopped) == expected
        assert one_by_one(engines, [(prompt, stopped)], DecodingParams(Mode.AR)).outputs[0] == expected


@pytest.mark.model
def test_a_run_on_the_default_proposer(tmp_path: Path) -> None:
    out, chart = tmp_path / "out.json", tmp_path / "chart.png"
    arguments = ["--context", "16", "--tokens", "4", "--repeats", "1", "--json", str(out), "--plot", str(chart)]
    result = CliRunner().invoke(app, ["bench", "engine", *arguments])
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    for name in ("ar_pass_ms", "window17_pass_ms", "propose8_pass_ms", "fused24_pass_ms", "bandwidth_gb_per_s"):
        assert report["figures"][name] > 0
    for name in ("ar_over_bandwidth_floor", "window17_over_ar", "ar_vs_transformers"):
        assert report["ratios"][name] > 0
        assert name in result.output
    assert report["config"]["threads"] >= 1
    assert chart.stat().st_size > 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--checkpoint", "null"], "null checkpoint"),
        (["--json", "nowhere/out.json"], "--json nowhere/out.json: there is no folder nowhere"),
        (["--plot", "nowhere/out.png"], "--plot nowhere/out.png: there is no folder nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_line(arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(app, ["bench", "engine", *arguments])
    assert result.exit_code == 1
    assert complaint in result.stderr
    assert "Traceback" not in result.output
