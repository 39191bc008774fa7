"""An engine of several ranks decodes what one process does, and ends when a rank does."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from prove_core.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from prove_core.engine.build import build_engine
from prove_core.engine.engine import Engine
from prove_core.errors import EngineStopped, ProveError
from prove_core.model.parallel import LeadingRunner
from prove_core.model.window import PassOutput, Window
from prove_core.types import DecodingParams, Limits, Mode, SamplingParams
from tests.core.engine.harness import engine_config, generate
from tests.core.model.checkpoints import MASK, save_llama
from tests.core.ranks import on_all_ranks, parallel_engine

PROMPTS = [[72, 101, 108, 108, 111], [*range(30, 90)], [7]]
MODES = (Mode.AR, Mode.LOSSLESS, Mode.FUSED, Mode.AUTO)
SAMPLING = SamplingParams(prompt_length=1, temperature=0.8, top_p=0.9, seed=5, frequency_penalty=0.3)


def _config(folder: Path, *, dtype: str = "float32", deterministic: bool = False) -> EngineConfig:
    model = ModelConfig(checkpoint=str(folder), dtype=dtype, device="cpu", deterministic=deterministic)  # type: ignore[arg-type]
    return EngineConfig(
        model=model, cache=CacheConfig(tokens=512, page_size=4), scheduler=SchedulerConfig(prefill_chunk=16)
    )


def _texts(engine: Engine, sampling: SamplingParams | None = None) -> list[list[int]]:
    params = [DecodingParams(mode, block_size=4) for mode in MODES]
    return [generate(engine, prompt, how, Limits(24), sampling=sampling).tokens for prompt in PROMPTS for how in params]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_llama(tmp_path_factory.mktemp("ranks") / "model", extra=(MASK,))


@pytest.mark.parametrize("size", [2, 3])
def test_the_same_ids_in_every_mode(folder: Path, size: int) -> None:
    single = build_engine(_config(folder), name="single", plans=True).engine
    with parallel_engine(_config(folder), size, plans=True) as built:
        for sampling in (None, SAMPLING):
            assert _texts(built.engine, sampling) == _texts(single, sampling)
    single.stop()


def test_deterministic_bits_hold_among_three_ranks(folder: Path) -> None:
    """In bfloat16 lossless equals AR only if a row's bits do not depend on its place in the pass."""
    with parallel_engine(_config(folder, dtype="bfloat16", deterministic=True), 3) as built:
        texts = _texts(built.engine)
    for first in range(0, len(texts), len(MODES)):
        assert texts[first : first + len(MODES)] == [texts[first]] * len(MODES)


class _Failing:
    """A runner whose second pass fails."""

    def __init__(self) -> None:
        self.passes = 0

    def run(self, windows: Sequence[Window]) -> PassOutput:
        self.passes += 1
        raise RuntimeError("connection closed\nby peer")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the engine thread's last word
def test_a_lost_rank_ends_the_engine_and_says_so() -> None:
    inner = _Failing()

    def work(ranks: object) -> ProveError | None:
        assert hasattr(ranks, "leads")
        if not ranks.leads:
            ranks.receive()  # type: ignore[attr-defined]
            return None
        engine = Engine(LeadingRunner(inner, ranks), engine_config())  # type: ignore[arg-type]
        engine.start()
        end = generate(engine, [1, 2], DecodingParams(Mode.AR), Limits(4)).end
        engine._thread.join(timeout=60)
        assert not engine.alive
        with pytest.raises(EngineStopped):
            generate(engine, [1, 2], DecodingParams(Mode.AR), Limits(4), session="later")
        assert isinstance(end, ProveError)
        return end

    end, _ = on_all_ranks(2, work)
    assert isinstance(end, EngineStopped)
    assert inner.passes == 1, "no pass is tried again with a rank missing"
