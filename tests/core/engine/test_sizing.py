"""A pool of size `auto` over a real, tiny checkpoint."""

from pathlib import Path

import pytest

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.build import build_engine
from prove_core.engine.memory import total_bytes
from prove_core.engine.sizing import sized
from prove_core.errors import TooLittleMemory
from prove_core.model.loader import load, pick_device
from prove_core.model.ranks import Ranks
from tests.core.model.checkpoints import save_llama
from tests.core.ranks import on_all_ranks

CPU = pick_device("cpu")


def _config(folder: Path) -> EngineConfig:
    model = ModelConfig(checkpoint=str(folder), dtype="float32", device="cpu")
    return EngineConfig(model=model, cache=CacheConfig(tokens="auto"))


def test_auto_fills_the_fraction(tmp_path: Path) -> None:
    config = _config(save_llama(tmp_path / "model"))
    sizes = []
    for megabytes in (8, 16):
        built = build_engine(config, name="auto", plans=False, memory_fraction=megabytes * 2**20 / total_bytes(CPU))
        sizes.append(built.engine.capacity)
        built.engine.stop()
    assert 0 < sizes[0] < sizes[1]
    assert sizes[1] % config.cache.page_size == 0


def test_a_fraction_below_the_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TooLittleMemory, match="nothing is left for the KV pool"):
        build_engine(_config(save_llama(tmp_path / "model")), name="auto", memory_fraction=1e-9)


def test_ranks_agree_on_the_smallest_pool(tmp_path: Path) -> None:
    config = _config(save_llama(tmp_path / "model"))
    loaded = load(config.model)

    def tokens(megabytes: int, ranks: Ranks | None) -> int:
        fraction = megabytes * 2**20 / total_bytes(CPU)
        return sized(config, loaded, fraction, ranks).cache.pages

    agreed = on_all_ranks(2, lambda ranks: tokens((16, 8)[ranks.rank], ranks))
    assert agreed == [tokens(8, None)] * 2
