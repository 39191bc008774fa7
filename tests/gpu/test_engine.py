"""Whole engines on the card: exact modes, deterministic bits, and memory that comes back."""

from collections.abc import Iterator

import pytest
import torch

from prove_core.attention.flashinfer_backend import FlashInferAttention
from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.build import BuiltEngine, build_engine
from prove_core.engine.many import complete_many
from prove_core.evaluation.exactness import compare
from prove_core.text.prompt import Message, PromptRenderer
from prove_core.types import DecodingParams, GenerateRequest, Limits, Mode
from tests.core.engine.test_default_model import QUESTIONS

pytestmark = pytest.mark.model


def build(*, deterministic: bool, tokens: int | str = 16384, attention: str = "flashinfer") -> BuiltEngine:
    model = ModelConfig(checkpoint="default-proposer", device="cuda", deterministic=deterministic)
    config = EngineConfig(model=model, cache=CacheConfig(tokens=tokens), attention=attention)  # type: ignore[arg-type]
    return build_engine(config, name="test", plans=False)


def prompts(built: BuiltEngine) -> list[tuple[int, ...]]:
    assert built.info is not None
    renderer = PromptRenderer(built.info.tokenizer)
    return [tuple(renderer.render([Message("user", question)])) for question in QUESTIONS]


@pytest.fixture(scope="module")
def deterministic() -> Iterator[BuiltEngine]:
    built = build(deterministic=True)
    yield built
    built.engine.stop()


@pytest.fixture(scope="module")
def fast() -> Iterator[BuiltEngine]:
    """With recorded passes."""
    built = build(deterministic=False)
    yield built
    built.engine.stop()


def test_lossless_equals_ar_bit_for_bit(deterministic: BuiltEngine) -> None:
    assert deterministic.info is not None
    limits = Limits(64, frozenset(deterministic.info.eos_ids))
    results = compare(deterministic.engine, prompts(deterministic), limits, [1, 4, 8, 16])
    assert [result.equal for result in results] == [len(QUESTIONS)] * 4


def test_what_is_chosen(fast: BuiltEngine, deterministic: BuiltEngine) -> None:
    for built, recorded in ((fast, True), (deterministic, False)):
        runner = built.engine._runner
        assert isinstance(runner._forward._backend, FlashInferAttention)  # type: ignore[attr-defined]
        assert bool(runner._recorded) == recorded  # type: ignore[attr-defined]


def test_recorded_passes_decode_as_torch_does(fast: BuiltEngine) -> None:
    """In bfloat16 a near-tie may fall differently: most of the ids must agree up to the first one."""
    plain = build(deterministic=False, attention="torch")
    texts = []
    for built in (fast, plain):
        assert built.info is not None
        limits = Limits(24, frozenset(built.info.eos_ids))
        requests = [
            GenerateRequest(f"s{i}", p, DecodingParams(Mode.FUSED), limits) for i, p in enumerate(prompts(built))
        ]
        tokens: list[list[int]] = [[] for _ in requests]
        for index, event in complete_many(built.engine, requests, 4):
            tokens[index].extend(getattr(event, "tokens", ()))
        texts.append(tokens)
    plain.engine.stop()
    agreed = sum(a[:8] == b[:8] for a, b in zip(*texts, strict=True))
    assert agreed >= len(QUESTIONS) - 2


def test_memory_is_back_after_200_requests(fast: BuiltEngine) -> None:
    assert fast.info is not None
    limits = Limits(16, frozenset(fast.info.eos_ids))
    modes = [Mode.AR, Mode.LOSSLESS, Mode.FUSED, Mode.MARS]

    def serve(count: int, name: str) -> None:
        requests = [
            GenerateRequest(f"{name}{i}", prompts(fast)[i % len(QUESTIONS)], DecodingParams(modes[i % 4]), limits)
            for i in range(count)
        ]
        for _ in complete_many(fast.engine, requests, 16):
            pass

    serve(20, "warm")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    serve(200, "request")
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() - before < 4 << 20
    stats = fast.engine.stats()
    assert (stats.sessions, stats.free_pages) == (0, stats.total_pages)


def test_auto_fills_the_fraction_of_the_card() -> None:
    built = build(deterministic=False, tokens="auto")
    total = torch.cuda.get_device_properties(0).total_memory
    built.engine.stop()
    assert built.engine.capacity > 16384
    assert torch.cuda.max_memory_allocated() <= 0.9 * total
