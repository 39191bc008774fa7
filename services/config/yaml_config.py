"""YAML into pydantic models, with errors a person can act on."""

import json
import re
from collections.abc import Hashable, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from prove_core.errors import ProveError


class SettingsError(ProveError):
    """The configuration is wrong: one line that names the file, the key, and what is allowed."""


class _UniqueKeyLoader(yaml.SafeLoader):
    """YAML takes the last of equal keys in silence; here they are an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


# YAML 1.1 takes 1e-4 for text, since it has no point
_UniqueKeyLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789")
)


def read_yaml(path: Path) -> Any:
    """The file's content as plain data. Raises `SettingsError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise SettingsError(f"{path}: cannot be read: {reason}") from error
    try:
        return yaml.load(text, _UniqueKeyLoader)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise SettingsError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from error


def to_json(data: Any) -> str:
    """The data as JSON, where strict validation tells types apart and still takes names for enums."""
    return json.dumps(data, default=str)


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The first complaint in one line, and the keys of the others."""
    first, *others = error.errors()
    loc = _place(model, first["loc"])
    key = ".".join(loc)
    alternatives = [other["msg"] for other in others if _place(model, other["loc"]) == loc]
    match first["type"]:
        case "extra_forbidden":
            message = f"unknown key; allowed: {', '.join(_keys(model, loc[:-1]))}"
        case "missing":
            message = "required"
        case "value_error":
            message = str(first["ctx"]["error"])
        case "model_type":
            message = f"must be a mapping with keys among {', '.join(_keys(model, loc))}"
        case _:
            message = f"{' or '.join(_lower(text) for text in (first['msg'], *alternatives))}, got {first['input']!r}"
    text = f"{key}: {message}" if key else message
    more = dict.fromkeys(".".join(place) for other in others if (place := _place(model, other["loc"])) != loc)
    return f"{text} (and {len(more)} more: {', '.join(more)})" if more else text


def _place(model: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    """The keys that lead to a value, without pydantic's names for the types that a value of several types may have."""
    for depth, part in enumerate(loc):
        field = model.model_fields.get(str(part))
        inner = None if field is None else _model_in(field.annotation)
        if inner is None:
            types = [] if field is None else _alternatives(field.annotation)
            skipped = depth + 2 if len(types) > 1 else depth + 1
            return [str(key) for key in (*loc[: depth + 1], *loc[skipped:])]
        model = inner
    return [str(key) for key in loc]


def _alternatives(annotation: Any) -> list[Any]:
    """The types of a union, None left out: pydantic does not name that one either."""
    if get_origin(annotation) not in (Union, UnionType):
        return []
    return [kind for kind in get_args(annotation) if kind is not type(None)]


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _keys(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """The keys allowed at `path`."""
    for part in path:
        field = model.model_fields.get(part)
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            return []
        model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
