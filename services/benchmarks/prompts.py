"""What benchmarks on prompts share: an engine over a checkpoint that has text, and user messages as its prompts."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from prove_core.config import CacheConfig, EngineConfig, ModelConfig
from prove_core.engine.build import build_engine
from prove_core.engine.engine import Engine
from prove_core.errors import CheckpointError
from prove_core.model.info import CheckpointInfo
from prove_core.model.progress import Progress
from prove_core.text.prompt import Message, PromptRenderer
from prove_core.types import TokenIds


@dataclass(frozen=True, slots=True)
class TextEngine:
    """A started engine and its checkpoint's tokenizer and facts."""

    engine: Engine
    info: CheckpointInfo


@contextmanager
def text_engine(
    model: ModelConfig, *, tokens: int, name: str, progress: Progress, prefix_cache: bool = True, plans: bool = False
) -> Iterator[TextEngine]:
    """An engine with a KV pool of `tokens`, stopped at the end. `plans`: it shall decode in mode `auto`.

    Raises as `build_engine` and for a null checkpoint.
    """
    cache = CacheConfig(tokens=tokens, prefix_cache=prefix_cache)
    built = build_engine(EngineConfig(model=model, cache=cache), name=name, progress=progress, plans=plans)
    try:
        if built.info is None:
            raise CheckpointError("the null checkpoint has no text: use a real one")
        yield TextEngine(built.engine, built.info)
    finally:
        built.engine.stop()


def rendered(info: CheckpointInfo, texts: Sequence[str]) -> list[TokenIds]:
    """Each text as the only message of a chat, in the checkpoint's template."""
    renderer = PromptRenderer(info.tokenizer)
    return [tuple(renderer.render([Message("user", text)])) for text in texts]
