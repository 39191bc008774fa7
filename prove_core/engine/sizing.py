"""The size of a loaded model's KV pool, where the configuration leaves it to the memory there is."""

import logging

import torch

from prove_core.config import CacheConfig, EngineConfig
from prove_core.engine.memory import FRACTIONS, Budget, bytes_per_token, gib, pass_bytes, pool_tokens, total_bytes
from prove_core.engine.profile import CudaMeter, profiled_pass, reserve
from prove_core.model.loader import LoadedModel
from prove_core.model.probe import probe, text_config
from prove_core.model.ranks import Ranks

logger = logging.getLogger(__name__)


def limit_memory(device: torch.device, fraction: float | None) -> None:
    """Hold this process to its share of a GPU: what it takes beyond that fails here, not in its neighbour."""
    if device.type == "cuda" and fraction is not None:
        torch.cuda.set_per_process_memory_fraction(fraction, device)


def sized(config: EngineConfig, loaded: LoadedModel, fraction: float | None, ranks: Ranks | None) -> EngineConfig:
    """The configuration with `cache.tokens` as a number, the same on all `ranks`.

    Raises TooLittleMemory where `auto` leaves no page.
    """
    if config.cache.tokens != "auto":
        return config
    model, cache = loaded.model, config.cache
    layers = [spec.shape for spec in probe(model)]
    share = FRACTIONS.get(model.device.type, FRACTIONS["cpu"]) if fraction is None else fraction
    budget = Budget(total_bytes(model.device), share, taken=_taken(loaded), reserved=_reserved(config, loaded))
    tokens = pool_tokens(budget, bytes_per_token(layers, model.dtype), cache.page_size)
    tokens = tokens if ranks is None else ranks.least(tokens)
    logger.info(
        "KV pool of %d tokens: %g of %s, less %s of weights and %s for a pass",
        tokens,
        share,
        gib(budget.total),
        gib(budget.taken),
        gib(budget.reserved),
    )
    return with_tokens(config, tokens)


def with_tokens(config: EngineConfig, tokens: int) -> EngineConfig:
    """The configuration with a pool of `tokens` tokens."""
    cache = CacheConfig(**{**config.cache.model_dump(), "tokens": tokens})
    return config.model_copy(update={"cache": cache})


def _taken(loaded: LoadedModel) -> int:
    """By the weights of this model, each counted once: a process may hold other models with shares of their own."""
    model = loaded.model
    tensors = [*model.parameters(), *model.buffers(), model.get_output_embeddings().weight]
    sizes: dict[int, int] = {}
    for tensor in tensors:
        sizes[tensor.data_ptr()] = max(tensor.nbytes, sizes.get(tensor.data_ptr(), 0))
    return sum(sizes.values())


def _reserved(config: EngineConfig, loaded: LoadedModel) -> int:
    """For what a pass takes: measured on a GPU, estimated on the CPU, where memory is not counted."""
    rows, model = config.scheduler.max_rows, loaded.model
    if model.device.type == "cuda":
        recorded = config.cuda_graphs == "auto" and not config.model.deterministic
        return reserve(profiled_pass(model, rows, CudaMeter(model.device)), recorded=recorded)
    text = text_config(model)
    intermediate = getattr(text, "intermediate_size", None) or 4 * text.hidden_size
    vocabulary = model.get_output_embeddings().weight.shape[0]
    return pass_bytes(rows, vocabulary, text.hidden_size, intermediate)
