"""Trap 40: logits wider than the tokenizer, and of different widths, in the two roles."""

from collections.abc import Sequence

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from prove_core.model.runner import ModelRunner
from prove_core.model.window import PassOutput, Window
from prove_core.types import DecodingParams, Limits, Mode, Role
from tests.core.engine.harness import cycle, engine_config, generate, running
from tests.core.tiny import PAGE_SIZE, tiny_runner

TOKENIZER = 40  # ids the tokenizer has; its last one is the placeholder
PLACEHOLDER = TOKENIZER - 1


def model(width: int, seed: int) -> LlamaForCausalLM:
    """A random model whose favourite ids are those that the tokenizer lacks."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=width,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
        tie_word_embeddings=False,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()


class Watched:
    """A runner that notes every id it is fed."""

    def __init__(self, inner: ModelRunner) -> None:
        self.inner = inner
        self.fed: set[int] = set()

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """Note, then run."""
        for window in windows:
            self.fed.update(window.tokens)
        return self.inner.run(windows)


def runner(width: int, seed: int) -> Watched:
    """Bans what the tokenizer lacks and the placeholder, as loading a checkpoint does."""
    banned = [PLACEHOLDER, *range(TOKENIZER, width)]
    return Watched(tiny_runner(model(width, seed), banned=banned, placeholder_id=PLACEHOLDER))


def test_padding_ids_and_the_placeholder_are_never_emitted_nor_sent_to_a_verifier() -> None:
    config = engine_config(tokens=128 * PAGE_SIZE, page_size=PAGE_SIZE)
    proposer, verifier = runner(64, 1), runner(52, 2)
    engines = {}
    with running(proposer, config) as engines[Role.PROPOSER], running(verifier, config) as engines[Role.VERIFIER]:
        ar = generate(engines[Role.PROPOSER], [1, 2, 3], DecodingParams(Mode.AR), Limits(60)).tokens
        assert max(ar) < PLACEHOLDER
        for mode in (Mode.PROVE, Mode.SPECULATIVE, Mode.LOSSLESS, Mode.FUSED):
            params = DecodingParams(mode, theta=0.0, block_size=8, draft_length=4)
            tokens = cycle(engines, [1, 2, 3], params, Limits(60), mode.value).tokens
            assert len(tokens) == 60
            assert max(tokens) < PLACEHOLDER
            assert mode is Mode.PROVE or tokens == ar
    assert max(proposer.fed | verifier.fed) < PLACEHOLDER
