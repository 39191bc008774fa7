"""`prove bench modes`: its arithmetic, its checks of outputs, and that it runs. What it measures decides no test."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from prove_core.engine.engine import Engine
from prove_core.types import Cost, DecodingParams, Limits, Mode, Role, TokenIds
from services.benchmarks.agreement import Agreement, Judge, first_difference
from services.benchmarks.decoding import Decoded, Task, one_by_one, together
from services.benchmarks.mode_figures import best_settings, run_ratios, run_samples
from services.benchmarks.mode_settings import FULL, QUICK
from services.benchmarks.modes import waves
from services.cli.main import app
from tests.core.toy import VOCABULARY
from tests.services.cli.chat_model import save_chat_model, write_questions
from tests.services.toy_engine import toy_engine

TASKS: list[Task] = [(tuple(range(start, start + 5)), Limits(20)) for start in (1, 7, 20)]
LOSSLESS = DecodingParams(Mode.LOSSLESS, block_size=4)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = toy_engine()
    yield engine
    engine.stop()


def decoded(tokens: int, seconds: float, passes: int = 1, pass_seconds: float = 0.1) -> Decoded:
    return Decoded(((1,) * tokens,), seconds, Cost(proposer_passes=passes, pass_seconds=pass_seconds))


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0.1, 9)), min_size=1, max_size=8))
def test_a_rate_is_of_the_sums(parts: list[tuple[int, float]]) -> None:
    whole = Decoded((), 0.0)
    for tokens, seconds in parts:
        whole += decoded(tokens, seconds)
    assert whole.rate == pytest.approx(sum(n for n, _ in parts) / sum(s for _, s in parts))
    assert whole.passes == len(parts)


def test_alone_each_prompt_is_a_wave_and_together_all_are_one() -> None:
    assert waves(TASKS, 1) == [[task] for task in TASKS]
    assert waves(TASKS, 4) == [[*TASKS, *TASKS, *TASKS[:2]]], "two rounds of four"
    assert waves(TASKS * 5, 2) == [TASKS * 5], "every prompt once at least"


def test_settings_are_named_by_what_they_are() -> None:
    settings = FULL.settings()
    assert settings["ar"] == DecodingParams(Mode.AR)
    assert settings["lossless_b6"].block_size == 6
    assert (settings["fused_b8_rows16"].mode, settings["fused_b8_rows16"].fused_rows) == (Mode.FUSED, 16)
    assert settings["auto"].mode is Mode.AUTO
    assert set(QUICK.settings()) <= set(settings)
    assert {params.mode for params in FULL.pairs().values()} == {Mode.PROVE, Mode.SPECULATIVE}
    assert not QUICK.pairs()
    assert not replace(FULL, concurrency=(2,)).pairs(), "two models run alone"


def test_samples_of_a_run() -> None:
    runs = {"ar": [decoded(10, 2.0, passes=10, pass_seconds=1.0)], "transformers": [decoded(10, 4.0)]}
    assert run_samples(runs, 4) == {
        "ar_c4_tokens_per_second": [5.0],
        "ar_c4_tokens_per_pass": [1.0],
        "ar_c4_ms_per_pass": [100.0],
        "transformers_c4_tokens_per_second": [2.5],
    }


def test_ratios_compare_the_best_of_each_kind_in_the_same_repeat() -> None:
    """The second repeat ran on a machine half as fast."""
    rates = {
        "ar": 10,
        "lossless_b4": 12,
        "lossless_b6": 15,
        "fused_b8_rows24": 18,
        "auto": 20,
        "prove_theta0.01": 30,
        "transformers": 5,
    }
    runs = {name: [decoded(rate, 1.0), decoded(rate, 2.0)] for name, rate in rates.items()}
    modes = {"lossless_b4": Mode.LOSSLESS, "lossless_b6": Mode.LOSSLESS, "fused_b8_rows24": Mode.FUSED}
    settings = {"ar": DecodingParams(Mode.AR), "auto": DecodingParams(Mode.AUTO)}
    settings |= {name: DecodingParams(mode) for name, mode in modes.items()}
    assert best_settings(runs, settings) == {
        "lossless": "lossless_b6",
        "fused": "fused_b8_rows24",
        "fixed": "fused_b8_rows24",
        "exact": "auto",
    }
    ratios = run_ratios(runs, settings, 1)
    assert ratios["best_lossless_vs_ar"] == 2
    assert ratios["fused_vs_lossless"] == 18 / 15
    assert ratios["ar_vs_transformers"] == 2
    assert ratios["auto_vs_ar_c1"] == 2
    assert ratios["auto_vs_best_fixed_c1"] == pytest.approx(20 / 18)
    assert ratios["prove_theta0.01_vs_ar_c1"] == 3
    assert "ar_vs_ar_c1" not in ratios
    only_ar = {name: runs[name] for name in ("ar", "auto")}
    assert run_ratios(only_ar, settings, 8) == {"auto_vs_ar_c8": 2.0, "auto_vs_best_fixed_c8": 2.0}


@pytest.mark.parametrize(
    "params", [DecodingParams(Mode.AR), LOSSLESS, DecodingParams(Mode.FUSED), DecodingParams(Mode.AUTO)]
)
def test_one_by_one_and_together_decode_the_same(engine: Engine, params: DecodingParams) -> None:
    alone = one_by_one({Role.PROPOSER: engine}, TASKS, params)
    crowd = together(engine, TASKS, params, concurrency=2)
    assert alone.outputs == crowd.outputs
    assert [len(output) for output in alone.outputs] == [20, 20, 20]
    assert alone.tokens == crowd.tokens == 60
    assert alone.passes >= 3
    assert alone.seconds > 0
    if params.mode is Mode.AR:
        assert alone.passes == 60


@pytest.mark.parametrize(
    ("a", "b", "index"),
    [((1, 2), (1, 2), None), ((1, 2), (1, 3), 1), ((1,), (1, 2), 1), ((), (4,), 0), ((5, 2), (1, 2), 0)],
)
def test_where_outputs_differ_first(a: TokenIds, b: TokenIds, index: int | None) -> None:
    assert first_difference(a, b) == first_difference(b, a) == index


def test_a_difference_is_judged_by_the_model(engine: Engine) -> None:
    """The toy gives its choice 0.9 and every other id 0.001: nothing it says is a near-tie."""
    references = one_by_one({Role.PROPOSER: engine}, TASKS, DecodingParams(Mode.AR)).outputs
    judge = Judge(engine, TASKS, references, "bfloat16")
    assert judge.agreement(references * 2) == Agreement(6, 0, 0)
    other = (*references[1][:9], (references[1][9] + 1) % VOCABULARY, *references[1][10:])
    assert judge.agreement((references[0], other)) == Agreement(2, 1, 0)
    assert judge.gap(1, other) == pytest.approx(6.8, abs=0.01)  # log(0.9 / 0.001)


def test_what_the_model_finds_alike_is_a_near_tie(engine: Engine) -> None:
    """A made-up reference: the toy thinks as little of its token as of the other one."""
    truth = one_by_one({Role.PROPOSER: engine}, TASKS[:1], DecodingParams(Mode.AR)).outputs[0]
    wrong, other = (((truth[0] + step) % VOCABULARY,) for step in (1, 2))
    assert Judge(engine, TASKS[:1], [wrong], "bfloat16").agreement([other]) == Agreement(1, 1, 1)


def test_an_early_end_counts_as_its_stop_id(engine: Engine) -> None:
    prompt, limits = TASKS[0]
    truth = one_by_one({Role.PROPOSER: engine}, TASKS[:1], DecodingParams(Mode.AR)).outputs[0]
    tasks = [(prompt, replace(limits, stop_ids=frozenset({truth[6], (truth[6] + 1) % VOCABULARY})))]
    longer = (*truth[:6], (truth[6] + 2) % VOCABULARY)
    judge = Judge(engine, tasks, [truth[:6]], "float32")
    assert judge.gap(0, longer) == pytest.approx(6.8, abs=0.01), "the model would have ended"
    assert judge.agreement([longer]) == Agreement(1, 1, 0)


def run(data: Path, folder: Path, *arguments: str) -> dict[str, dict[str, float]]:
    """The report of a quick run."""
    out, chart = folder / "out.json", folder / "chart.png"
    flags = ["--quick", "--repeats", "1", "--concurrency", "1", "--concurrency", "3", "--json", out, "--plot", chart]
    result = CliRunner().invoke(app, ["bench", "modes", "--data", str(data), *map(str, flags), *arguments])
    assert result.exit_code == 0, result.output
    assert chart.stat().st_size > 0
    report: dict[str, dict[str, float]] = json.loads(out.read_text())
    return report


def check(report: dict[str, dict[str, float]]) -> None:
    """What every report of exact modes must have."""
    figures, ratios = report["figures"], report["ratios"]
    for name in QUICK.settings():
        for count in (1, 3):
            assert figures[f"{name}_c{count}_tokens_per_second"] > 0
            assert figures[f"{name}_c{count}_tokens_per_pass"] >= 1
            assert figures[f"{name}_c{count}_different_beyond_near_ties"] == 0
            assert name == "ar" or ratios[f"{name}_vs_ar_c{count}"] > 0
    for name in ("best_lossless_vs_ar", "fused_vs_lossless", "ar_vs_transformers"):
        assert ratios[name] > 0


def test_a_run_on_a_tiny_model_is_exact(tmp_path: Path) -> None:
    model = save_chat_model(tmp_path / "model")
    data = write_questions(tmp_path / "prompts.jsonl", 2)
    arguments = ("--checkpoint", str(model), "--dtype", "float32", "--max-tokens", "12")
    report = run(data, tmp_path, *arguments)
    check(report)
    for name in (*QUICK.settings(), "transformers"):
        assert report["figures"][f"{name}_c1_different"] == 0
    assert report["figures"]["ar_c3_completions"] == 6


@pytest.mark.model
def test_a_run_on_the_default_proposer(tmp_path: Path) -> None:
    data = write_questions(tmp_path / "prompts.jsonl", 1)
    check(run(data, tmp_path, "--max-tokens", "8"))


def test_a_bad_prompt_file_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["bench", "modes", "--data", str(tmp_path / "none.jsonl")])
    assert result.exit_code == 1
    assert "none.jsonl" in result.stderr
    assert "Traceback" not in result.output
