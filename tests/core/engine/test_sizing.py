"""A pool of size `auto` over a real, tiny checkpoint."""

from pathlib import Path

import pytest

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.build import build_engine
from prove_core.engine.memory import total_bytes
from prove_core.errors import TooLittleMemory
from prove_core.model.loader import pick_device
from tests.core.model.checkpoints import save_llama

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
