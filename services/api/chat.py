"""Messages of a chat-completions request."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from prove_core.text.prompt import Message
from services.api.refusals import MESSAGE_FIELDS, invalid, refuse, unsupported


class Strict(BaseModel):
    """Base of everything a client sends: no coercion, no unknown fields, no NaN."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class TextPart(TypedDict):
    """A part of a message's content."""

    type: Literal["text"]
    text: str


def _known_role(role: object) -> object:
    if role in ("tool", "function"):
        raise unsupported(f"'{role}' is not supported")
    return role


def _as_text(content: object) -> object:
    """Content given as a list of text parts, joined by line breaks."""
    if not isinstance(content, list):
        return content
    if not content:
        raise invalid("must not be an empty list")
    return "\n".join(_part_text(part) for part in content)


def _part_text(part: object) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        raise invalid("must be a string or a list of objects with a 'type'")
    if kind != "text":
        raise unsupported(f"with a part of type '{kind}' is not supported")
    text = part.get("text")
    if not isinstance(text, str):
        raise invalid("has a part of type 'text' without a string 'text'")
    if unknown := sorted(part.keys() - {"type", "text"}):
        raise unsupported(f"with '{unknown[0]}' in a part is not supported")
    return text


Content = str | Annotated[list[TextPart], Field(min_length=1)] | None  # as clients may send it
Role = Annotated[Literal["system", "developer", "user", "assistant"], BeforeValidator(_known_role)]


class ChatMessage(Strict):
    """One message: a role, and text as a string or a list of text parts."""

    role: Role
    content: Annotated[str | None, BeforeValidator(_as_text, json_schema_input_type=Content)] = None
    name: Annotated[str, Field(pattern=r"^[^\s<|\\/>]{1,64}$")] | None = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, data: object) -> object:
        return refuse(data, MESSAGE_FIELDS)

    @model_validator(mode="after")
    def _has_content(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise invalid(f"must be given for role '{self.role}'", "content")
        return self

    def to_message(self) -> Message:
        """The message for the prompt renderer."""
        return Message(self.role, self.content or "", self.name)
