"""From the name of a checkpoint to the place of its files and its transformers configuration."""

import difflib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, PretrainedConfig

from prove_core.errors import CheckpointError, UnsupportedModel
from prove_core.model.builtin import BUILTINS, Stock, fetch
from prove_core.model.progress import Progress
from prove_core.model.quiet import quiet

# architectures released under a name of their own whose code is another family's
_SAME_AS = {"a2d-qwen2": "qwen2"}


@dataclass(frozen=True, slots=True)
class Source:
    """Where a checkpoint's files are. `location` is a local folder or a hub id; `stock` is set for built-in ones.

    `adapter` is the folder of the adapter that belongs to it, if any.
    """

    name: str
    location: str
    stock: Stock | None
    adapter: str | None = None

    @property
    def is_remote(self) -> bool:
        """The files are on the model hub, or in its cache."""
        return self.stock is None and not self.is_local

    @property
    def is_local(self) -> bool:
        """The files are the user's own folder, whose name says nothing about what is in it."""
        return self.stock is None and Path(self.location).is_dir()


@dataclass(frozen=True, slots=True)
class Description:
    """A checkpoint's configuration. `model_type` is as written in the file, before any mapping to a known family."""

    config: PretrainedConfig
    model_type: str

    @property
    def text(self) -> PretrainedConfig:
        """The language model's part of it."""
        return self.config.get_text_config(decoder=True)

    @property
    def width(self) -> int:
        """Rows of the embedding, which may exceed the tokenizer's ids."""
        return int(self.text.vocab_size)


def resolve(name: str, progress: Progress) -> Source:
    """Find a built-in checkpoint (fetching it on first use), a folder, or else take `name` for a hub id."""
    if name in BUILTINS:
        builtin = BUILTINS[name]
        adapter = None if builtin.adapter is None else str(builtin.adapter)
        return Source(name, str(fetch(builtin, progress)), builtin.stock, adapter)
    folder = Path(name).expanduser()
    if folder.is_dir():
        _check_folder(folder)
        return Source(name, str(folder), None)
    if folder.exists():
        raise CheckpointError(f"checkpoint {name!r} is a file: give the folder that holds config.json")
    if _is_path(name):
        raise CheckpointError(f"no checkpoint folder {name!r}: check the path")
    near = difflib.get_close_matches(name, BUILTINS, n=2, cutoff=0.5)
    if near and "/" not in name:
        raise CheckpointError(
            f"unknown checkpoint {name!r}: did you mean {' or '.join(near)}? (`prove models` lists the built-in ones)"
        )
    return Source(name, name, None)


def describe(source: Source) -> Description:
    """Read config.json. Raises CheckpointError if it can't be had, UnsupportedModel if its family is unknown."""
    try:
        with quiet():
            if source.is_remote:
                _ask_hub_once(source.location)
            raw, _ = PretrainedConfig.get_config_dict(source.location)
    except Exception as error:
        raise _unreadable(source, error) from error
    if not isinstance(raw, dict):
        raise CheckpointError(f"config.json of checkpoint {source.name!r} is invalid: it holds no JSON object")
    model_type = str(raw.get("model_type", ""))
    family = _SAME_AS.get(model_type, model_type)
    if family not in CONFIG_MAPPING:
        raise UnsupportedModel(
            f"checkpoint {source.name!r} has model type {model_type!r}, which transformers {transformers.__version__}"
            " does not know (code that comes with a checkpoint is never run)"
        )
    config = _parse(source, family, raw)
    if config.is_encoder_decoder:
        raise UnsupportedModel(f"checkpoint {source.name!r} is an encoder-decoder: only decoder-only models are served")
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise UnsupportedModel(f"checkpoint {source.name!r} is of type {model_type!r}, which is no language model")
    return Description(config, model_type)


def one_line(error: BaseException) -> str:
    """The first line of an error's message, for use inside another message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def _ask_hub_once(name: str) -> None:
    """Fail within seconds when the hub is out of reach, where transformers would retry for half a minute."""
    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    if not constants.HF_HUB_OFFLINE:
        get_hf_file_metadata(hf_hub_url(name, "config.json"), timeout=10)


def _parse(source: Source, family: str, raw: dict[str, Any]) -> PretrainedConfig:
    kept = {key: value for key, value in raw.items() if key not in ("model_type", "auto_map")}
    try:
        with quiet():
            config = CONFIG_MAPPING[family].from_dict(kept)
    except Exception as error:
        raise CheckpointError(f"config.json of checkpoint {source.name!r} is invalid: {one_line(error)}") from error
    config._name_or_path = source.location
    return config


def _check_folder(folder: Path) -> None:
    if (folder / "config.json").is_file():
        return
    if (folder / "adapter_config.json").is_file():
        raise CheckpointError(f"{folder} holds an adapter: give it as `adapter`, and its base model as `checkpoint`")
    raise CheckpointError(f"checkpoint folder {folder} has no config.json: it is no transformers checkpoint")


def _is_path(name: str) -> bool:
    return name.startswith((".", "~", os.sep)) or name.endswith(os.sep) or name.count("/") > 1


def _unreadable(source: Source, error: Exception) -> CheckpointError:
    if not source.is_remote:
        return CheckpointError(f"config.json of checkpoint {source.name!r} cannot be read: {one_line(error)}")
    return CheckpointError(
        f"checkpoint {source.name!r} is neither built in (`prove models`) nor a local folder, and it could not be had"
        f" from the model hub (check the name and the network): {one_line(error)}"
    )
