"""The API's description, served as `/openapi.json`: made of the very models that check requests and build replies."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from services.api.chat import ChatMessage
from services.api.chunks import ChatCompletionChunk
from services.api.refusals import MESSAGE_FIELDS, REQUEST_FIELDS, STREAM_OPTION_FIELDS, Neutral
from services.api.replies import ChatCompletion, ModelCard, ModelList
from services.api.schema import ChatCompletionRequest, StreamOptions
from services.config.limits import RequestLimits

Json = dict[str, Any]

REF = "#/components/schemas/{model}"
CHAT = "/v1/chat/completions"
FAILURES = {
    400: "Wrong or unsupported; `param` names the field.",
    404: "No such model.",
    413: "The body is too large.",
    429: "Too much is waiting already; `Retry-After` says when to come back.",
    500: "A fault of the server.",
    503: "No replica can take the request now; `Retry-After` says when to come back.",
    504: "Not complete within the time it has.",
}
BOUNDED = {  # the type that a keyword is about
    "maximum": "integer",
    "maxItems": "array",
    "maxLength": "string",
    "maxProperties": "object",
    "additionalProperties": "object",
}
CONTENT_OR_ASSISTANT = [
    {"properties": {"content": {"not": {"type": "null"}}}, "required": ["content"]},
    {"properties": {"role": {"const": "assistant"}}},
]
NEUTRAL = {ChatCompletionRequest: REQUEST_FIELDS, ChatMessage: MESSAGE_FIELDS, StreamOptions: STREAM_OPTION_FIELDS}


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(BaseModel):
    """Body of every reply with a status from 400 on, and the frame with which a stream fails."""

    error: ErrorDetail


class Health(BaseModel):
    """The server answers."""

    status: Literal["ok"]


class Target(BaseModel):
    """Where replicas export metrics, as Prometheus' HTTP service discovery takes it."""

    targets: list[str]
    labels: dict[str, str]


READS: Mapping[str, tuple[type[BaseModel], str]] = {
    "/health": (Health, "Whether the server answers."),
    "/v1/models": (ModelList, "The models that are served."),
    "/v1/models/{name}": (ModelCard, "One model."),
}


def describe(model: str, limits: RequestLimits, *, guarded: bool) -> Json:
    """The OpenAPI document of a server of `model`; `guarded`: it asks for a key."""
    document: Json = {
        "openapi": "3.1.0",
        "info": {"title": "ProVe", "version": "1", "description": "OpenAI's chat completions, decoded in blocks."},
        "paths": {path: {"get": _read(path, *found)} for path, found in READS.items()}
        | {"/metrics/targets": {"get": _targets()}, CHAT: {"post": _chat()}},
        "components": {"schemas": _schemas(model, limits)},
    }
    if guarded:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
        document["paths"]["/health"]["get"]["security"] = []
    return document


def _schemas(model: str, limits: RequestLimits) -> Json:
    read: list[type[BaseModel]] = [
        ChatCompletion,
        ChatCompletionChunk,
        ErrorReply,
        Target,
        *(kind for kind, _ in READS.values()),
    ]
    _, taken = models_json_schema([(ChatCompletionRequest, "validation")], ref_template=REF)
    _, given = models_json_schema([(kind, "serialization") for kind in read], ref_template=REF)
    schemas: Json = taken["$defs"] | given["$defs"]
    for kind, fields in NEUTRAL.items():
        schemas[kind.__name__]["properties"] |= {name: _neutral(values) for name, values in fields.items()}
    schemas[ChatMessage.__name__]["anyOf"] = CONTENT_OR_ASSISTANT
    _limit(schemas[ChatCompletionRequest.__name__]["properties"], model, limits)
    return schemas


def _neutral(values: Neutral) -> Json:
    return {"enum": [None, *values], "description": "Not supported: only values that ask for nothing."}


def _limit(fields: Json, model: str, limits: RequestLimits) -> None:
    """What this server allows, where it is less than the API does."""
    fields["model"] = {"const": model}
    fields["messages"]["maxItems"] = limits.max_messages
    _bound(fields["n"], "maximum", limits.max_choices)
    _bound(fields["stop"], "maxItems", limits.max_stops)
    _bound(fields["stop"], "maxLength", limits.max_stop_length)
    _bound(fields["stop_token_ids"], "maxItems", limits.max_stops)
    _bound(fields["logit_bias"], "maxProperties", limits.max_logit_biases)
    _bound(fields["logit_bias"], "additionalProperties", False)
    if limits.max_completion_tokens is not None:
        for name in ("max_tokens", "max_completion_tokens"):
            _bound(fields[name], "maximum", limits.max_completion_tokens)


def _bound(field: Json, keyword: str, value: int | bool) -> None:
    for option in field["anyOf"]:
        if option.get("type") == BOUNDED[keyword]:
            option[keyword] = value
        if keyword == "maxLength" and option.get("type") == "array":
            option["items"][keyword] = value


def _chat() -> Json:
    stream = {"text/event-stream": {"schema": {"type": "string", "description": "Frames of ChatCompletionChunk."}}}
    replies = _replies({"application/json": _ref(ChatCompletion), **stream}, *FAILURES)
    body = {"required": True, "content": {"application/json": _ref(ChatCompletionRequest)}}
    return {"operationId": "chat", "summary": "Complete a chat.", "requestBody": body, "responses": replies}


def _read(path: str, reply: type[BaseModel], summary: str) -> Json:
    found: Json = {"operationId": reply.__name__, "summary": summary}
    failures = (404,) if "{" in path else ()
    if failures:
        named = {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        found["parameters"] = [named]
    return found | {"responses": _replies({"application/json": _ref(reply)}, *failures)}


def _targets() -> Json:
    schema = {"schema": {"type": "array", "items": {"$ref": REF.format(model=Target.__name__)}}}
    summary = "Where replicas export their metrics; 404 where they export none."
    replies = _replies({"application/json": schema}, 404, 500)
    return {"operationId": "targets", "summary": summary, "responses": replies}


def _replies(content: Json, *failures: int) -> Json:
    error = {"application/json": _ref(ErrorReply)}
    found: Json = {"200": {"description": "Done.", "content": content}}
    found |= {str(status): {"description": FAILURES[status], "content": error} for status in failures}
    return found | {"default": {"description": "Any other failure.", "content": error}}


def _ref(kind: type[BaseModel]) -> Json:
    return {"schema": {"$ref": REF.format(model=kind.__name__)}}
