"""The settings of a training run: a YAML file, and options of the command line over it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from prove_core.training.config import Method, ProposerTraining, Run, VerifierTraining
from services.config.yaml_config import SettingsError, explain, read_yaml, to_json

R = TypeVar("R", bound=Run)

PRESETS: Mapping[str, Any] = {"model.checkpoint": "smollm2-135m-instruct"}
FULL: Mapping[type[Run], Mapping[str, Any]] = {  # all weights bear far less than LoRA matrices
    ProposerTraining: {"optimizer.lr": 1e-5, "adapter.sequential": 0, "adapter.placeholders": "shared"},
    VerifierTraining: {"optimizer.lr": 1e-5},
}


def training_settings(kind: type[R], path: Path | None, options: Mapping[str, Any]) -> R:
    """What the file says, with `options` in place of it, by dotted keys (`optimizer.lr`); None was not given.

    Training of all weights has defaults of its own. Raises SettingsError: one line with the file, the key, and what is
    allowed there.
    """
    data = None if path is None else read_yaml(path)
    data = {} if data is None else data
    for key, value in options.items():
        data = data if value is None else laid(data, key, value, over=True)
    full = isinstance(data, dict) and data.get("method") == Method.FULL
    for key, value in {**PRESETS, **(FULL[kind] if full else {})}.items():
        data = laid(data, key, value, over=False)
    try:
        return kind.model_validate_json(to_json(data), strict=True)
    except ValidationError as error:
        raise SettingsError(f"{path or 'options'}: {explain(error, kind)}") from None


def as_yaml(settings: Run) -> str:
    """All settings, as a file for `training_settings`."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)


def laid(data: Any, key: str, value: Any, *, over: bool) -> Any:
    """`data` with `value` at a dotted key, unless there is one already and not `over`.

    What is not a mapping is left for validation to refuse.
    """
    head, _, rest = key.partition(".")
    if not isinstance(data, dict):
        return data
    if rest:
        return data | {head: laid(data.get(head, {}), rest, value, over=over)}
    return data | {head: value} if over or head not in data else data
