"""The peer: `transformers.generate` on the same weights, with its own KV cache and PyTorch's attention."""

import time
from collections.abc import Sequence

import torch
from torch import nn
from transformers import GenerationConfig

from prove_core.config import ModelConfig
from prove_core.model.apply import GatedLinear
from prove_core.model.loader import load
from prove_core.model.progress import Progress
from prove_core.types import Limits, TokenIds
from services.benchmarks.decoding import Decoded, Task


class Peer:
    """Greedy decoding by transformers, on a CPU with `threads` threads."""

    def __init__(self, config: ModelConfig, threads: int, progress: Progress) -> None:
        """Load the checkpoint, without a gated adapter: tokens are none of its business. Raises as `load` does."""
        self._model = load(config, progress, attention="sdpa").model
        _remove_gated(self._model)
        self._model.generation_config = GenerationConfig(do_sample=False, pad_token_id=0)
        self._threads = threads

    def generate(self, prompt: TokenIds, limits: Limits) -> TokenIds:
        """The completion, as our engines count it: without the stop id that ends it."""
        torch.set_num_threads(self._threads)
        ids = torch.tensor([prompt], device=self._model.device)
        stops = sorted(limits.stop_ids)
        output = self._model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=limits.max_tokens,
            eos_token_id=stops or None,
        )
        tokens: list[int] = output[0, len(prompt) :].tolist()
        if tokens and tokens[-1] in limits.stop_ids:
            tokens.pop()
        return tuple(tokens)


def decoded_by(peer: Peer, tasks: Sequence[Task]) -> Decoded:
    """The tasks one after another."""
    whole = Decoded((), 0.0)
    for prompt, limits in tasks:
        begin = time.perf_counter()
        output = peer.generate(prompt, limits)
        whole += Decoded((output,), time.perf_counter() - begin)
    return whole


def _remove_gated(model: nn.Module) -> None:
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, GatedLinear):
                setattr(parent, name, child.base)
