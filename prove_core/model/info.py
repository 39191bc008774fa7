"""What a checkpoint's files say about it apart from the weights: all that the Router needs of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from prove_core.config import ModelConfig
from prove_core.errors import CheckpointError, RequestError
from prove_core.model.adapters import AdapterFolder, check_base, read_adapter
from prove_core.model.placeholder import explicit_placeholder, find_placeholder
from prove_core.model.progress import SILENT, Progress
from prove_core.model.quiet import quiet
from prove_core.model.source import Description, Source, describe, one_line, resolve
from prove_core.types import IDENTITY, Calibration, DecodingParams, Mode, TokenIds

_MARS_PLACEHOLDER = "<|mask|>"
_MARS_EOS = ("<|im_end|>", "<|endoftext|>")


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """A checkpoint without its weights.

    The tokenizer's ids are below `vocab_size`; the model's logits may be wider. `banned_ids` must never be chosen: the
    logits' ids beyond `vocab_size`, gaps in the vocabulary, the placeholder. `eos_ids` end a completion.
    `context_length` counts prompt and completion together. `placeholder_id` is None if the checkpoint has no obvious
    one: it can then decode and verify but not propose. `calibration` tells how far its confidences can be believed.
    """

    name: str
    tokenizer: PreTrainedTokenizerBase
    vocab_size: int
    eos_ids: TokenIds
    context_length: int
    placeholder_id: int | None
    banned_ids: TokenIds
    calibration: Calibration = IDENTITY

    def check_proposes(self, params: DecodingParams) -> None:
        """Raise RequestError for blocks from a checkpoint without a placeholder, rather than propose nonsense."""
        proposes = params.mode in (Mode.MARS, Mode.PROVE, Mode.LOSSLESS, Mode.FUSED) and params.block_size > 1
        if proposes and self.placeholder_id is None:
            raise RequestError(
                f"mode {params.mode.value} needs a placeholder token and checkpoint {self.name!r} has none:"
                " use mode ar or speculative, or set `placeholder` in the proposer's configuration",
                "decoding.mode",
            )


def read_info(config: ModelConfig, progress: Progress = SILENT) -> CheckpointInfo:
    """Read configuration and tokenizer, fetching a built-in checkpoint first. Raises as `load` does."""
    source = resolve(config.checkpoint, progress)
    return gather_info(config, source, describe(source), find_adapter(config, source))


def find_adapter(config: ModelConfig, source: Source) -> AdapterFolder | None:
    """The configured adapter, else the checkpoint's own, if it was made for this checkpoint. Raises CheckpointError."""
    path = config.adapter or source.adapter
    if path is None:
        return None
    adapter = read_adapter(path)
    check_base(adapter, source)
    return adapter


def gather_info(
    config: ModelConfig, source: Source, description: Description, adapter: AdapterFolder | None
) -> CheckpointInfo:
    """`read_info` for a checkpoint whose configuration has been read already."""
    tokenizer = _tokenizer(source, description)
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    size = min(max(vocabulary.values()) + 1, description.width)
    named = config.placeholder or (adapter.record.placeholder if adapter and adapter.record else None)
    placeholder = _placeholder(named, source, description, tokenizer, vocabulary)
    banned = set(range(description.width)) - set(vocabulary.values())
    if placeholder is not None:
        banned.add(placeholder)
    return CheckpointInfo(
        name=source.name,
        tokenizer=tokenizer,
        vocab_size=size,
        eos_ids=_eos_ids(source, description, tokenizer, vocabulary),
        context_length=_context_length(config, source, description),
        placeholder_id=placeholder,
        banned_ids=tuple(sorted(banned)),
        calibration=_calibration(adapter),
    )


def _calibration(adapter: AdapterFolder | None) -> Calibration:
    """The adapter's own, else confidences are taken as they are."""
    fitted = None if adapter is None or adapter.record is None else adapter.record.calibration
    return fitted or IDENTITY


def _tokenizer(source: Source, description: Description) -> PreTrainedTokenizerBase:
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(source.location, config=description.config)
    except Exception as error:
        raise CheckpointError(
            f"tokenizer of checkpoint {source.name!r} cannot be read: {one_line(error)}; its files must lie beside"
            " config.json"
        ) from error
    if not tokenizer.get_vocab():
        raise CheckpointError(f"checkpoint {source.name!r} has no tokenizer: its files must lie beside config.json")
    return tokenizer


def _placeholder(
    token: str | None,
    source: Source,
    description: Description,
    tokenizer: PreTrainedTokenizerBase,
    vocabulary: Mapping[str, int],
) -> int | None:
    if token is None and _is_mars(description):
        token = _MARS_PLACEHOLDER
    if token is None and source.stock is not None:
        token = source.stock.placeholder
    if token is not None:
        return explicit_placeholder(token, vocabulary, description.width, source.name)
    return find_placeholder(tokenizer.mask_token, vocabulary, description.width)


def _is_mars(description: Description) -> bool:
    return description.model_type.startswith("a2d-")


def _eos_ids(
    source: Source, description: Description, tokenizer: PreTrainedTokenizerBase, vocabulary: Mapping[str, int]
) -> TokenIds:
    """The ids that generate() would stop at, and the tokenizer's own end token, in that order."""
    try:
        declared = GenerationConfig.from_pretrained(source.location).eos_token_id
    except OSError:
        declared = description.text.eos_token_id
    ids = declared if isinstance(declared, list) else [declared]
    ids = [*ids, tokenizer.eos_token_id]
    if _is_mars(description):
        ids += [vocabulary.get(token) for token in _MARS_EOS]
    return tuple(dict.fromkeys(index for index in ids if index is not None))


def _context_length(config: ModelConfig, source: Source, description: Description) -> int:
    own = getattr(description.text, "max_position_embeddings", None)
    if own is None:
        if config.max_length is None:
            raise CheckpointError(f"checkpoint {source.name!r} does not say its context length: set max_length")
        return config.max_length
    if config.max_length is not None and config.max_length > own:
        raise CheckpointError(
            f"max_length {config.max_length} is beyond the {own} positions of checkpoint {source.name!r}: lower it"
        )
    return config.max_length or int(own)
