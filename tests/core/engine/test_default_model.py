"""The engine on the default checkpoint: AR equals transformers' own, lossless equals AR, in both precisions."""

from collections.abc import Iterator

import pytest
import torch
from transformers import AutoModelForCausalLM

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.build import BuiltEngine, build_engine
from prove_core.evaluation.exactness import compare
from prove_core.model.progress import SILENT
from prove_core.model.source import resolve
from prove_core.text.prompt import Message, PromptRenderer
from prove_core.types import DecodingParams, Limits, Mode, SamplingParams
from tests.core.engine.harness import generate
from tests.core.ranks import parallel_engine

pytestmark = pytest.mark.model

QUESTIONS = [
    "A baker fills 12 trays with 8 rolls each and sells 70 rolls. How many are left?",
    "Write a two-line poem about rain.",
    "Name three uses of a paper clip.",
    "Tom reads 14 pages a day. How many days does he need for a book of 210 pages?",
    "What is the capital of France?",
    "Explain in one sentence why the sky is blue.",
    "List the first six even numbers.",
    "Translate 'good morning' into Spanish.",
]


def build(dtype: str, deterministic: bool = False) -> BuiltEngine:
    model = ModelConfig(checkpoint="default-proposer", dtype=dtype, deterministic=deterministic)  # type: ignore[arg-type]
    return build_engine(EngineConfig(model=model, cache=CacheConfig(tokens=4096)), name="test")


def render(built: BuiltEngine) -> list[tuple[int, ...]]:
    assert built.info is not None
    renderer = PromptRenderer(built.info.tokenizer)
    return [tuple(renderer.render([Message("user", question)])) for question in QUESTIONS]


@pytest.fixture(scope="module")
def single() -> Iterator[BuiltEngine]:
    """The default proposer in float32."""
    built = build("float32")
    yield built
    built.engine.stop()


def test_ar_equals_transformers_generate(single: BuiltEngine) -> None:
    assert single.info is not None
    source = resolve("default-proposer", SILENT)
    reference = AutoModelForCausalLM.from_pretrained(source.location, dtype=torch.float32).eval()
    eos = list(single.info.eos_ids)
    banned = [[token] for token in single.info.banned_ids]
    for prompt in render(single)[:3]:
        with torch.inference_mode():
            ids = reference.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
                do_sample=False,
                max_new_tokens=24,
                eos_token_id=eos,
                bad_words_ids=banned,
                pad_token_id=eos[0],
            )[0, len(prompt) :].tolist()
        expected = ids[: next((i for i, token in enumerate(ids) if token in eos), len(ids))]
        ours = generate(single.engine, list(prompt), DecodingParams(Mode.AR), Limits(24, frozenset(eos)))
        assert ours.tokens == expected


def test_lossless_equals_ar_in_float32(single: BuiltEngine) -> None:
    assert single.info is not None
    prompts = render(single)[:4]
    results = compare(single.engine, prompts, Limits(32, frozenset(single.info.eos_ids)), [1, 4, 8, 16])
    assert [result.equal for result in results] == [len(prompts)] * 4


@pytest.mark.parametrize("size", [2, 3])  # 9 heads, 3 KV heads: two ranks share out the MLP alone, three all of it
def test_ranks_decode_the_same_ids_in_float32(single: BuiltEngine, size: int) -> None:
    assert single.info is not None
    prompt, limits = list(render(single)[size]), Limits(16, frozenset(single.info.eos_ids))
    config = EngineConfig(model=ModelConfig(checkpoint="default-proposer", dtype="float32"))
    expected = generate(single.engine, prompt, DecodingParams(Mode.LOSSLESS), limits)
    with parallel_engine(config, size) as built:
        ours = generate(built.engine, prompt, DecodingParams(Mode.LOSSLESS), limits)
        ar = generate(built.engine, prompt, DecodingParams(Mode.AR), limits)
    assert ours.tokens == expected.tokens == ar.tokens
    assert [step.accepted for step in ours.steps] == [step.accepted for step in expected.steps]


def test_a_seed_draws_the_same_text_in_every_mode_of_one_model(single: BuiltEngine) -> None:
    assert single.info is not None
    limits = Limits(20, frozenset(single.info.eos_ids))
    for prompt in render(single)[:2]:
        texts = set()
        for seed in (1, 2):
            how = SamplingParams(len(prompt), 0.9, 0.95, seed=seed, presence_penalty=0.5)
            ar = generate(single.engine, list(prompt), DecodingParams(Mode.AR), limits, sampling=how)
            texts.add(tuple(ar.tokens))
            for mode in (Mode.LOSSLESS, Mode.FUSED):
                outcome = generate(single.engine, list(prompt), DecodingParams(mode), limits, sampling=how)
                assert outcome.tokens == ar.tokens
                assert sum(step.accepted for step in outcome.steps)
        assert len(texts) == 2


def test_lossless_equals_ar_in_bfloat16_when_deterministic() -> None:
    built = build("bfloat16", deterministic=True)
    try:
        assert built.info is not None
        results = compare(built.engine, render(built), Limits(32, frozenset(built.info.eos_ids)), [1, 4, 8, 16])
        assert [result.equal for result in results] == [len(QUESTIONS)] * 4
    finally:
        built.engine.stop()
