"""Chat messages to prompt token ids, through the checkpoint's chat template."""

import copy
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from prove_core.errors import CheckpointError, RequestError

ROLES = frozenset({"system", "developer", "user", "assistant"})


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat; its content is plain text. Role `developer` is a newer name of `system`."""

    role: str
    content: str
    name: str | None = None


class PromptRenderer:
    """Renders chats for one tokenizer. Raises `CheckpointError` when its checkpoint has no chat template.

    Two promises beyond the template's own: a system message always reaches the model, and text inside a message is
    text, even if it spells a special token such as `<|im_end|>`: nobody can forge a turn.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        if not tokenizer.chat_template:
            raise CheckpointError(
                "the checkpoint's tokenizer has no chat template; serve an instruct (chat) checkpoint"
            )
        self._tokenizer = tokenizer
        # Splitting special tokens is a state of the tokenizer, not of a call: a copy keeps the two apart.
        self._quoting = copy.deepcopy(tokenizer)
        added = [token for token in tokenizer.added_tokens_decoder.items() if token[1].special]
        self._special = frozenset(index for index, _ in added) | frozenset(tokenizer.all_special_ids)
        self._spellings = re.compile("|".join(re.escape(token.content) for _, token in added) or r"(?!)")
        # Tokens sought in normalized text can be spelt in more ways than one.
        self._literal = not any(token.normalized for _, token in added)

    def render(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's ids, ending where the assistant's reply begins. Raises `RequestError`."""
        chat = [_as_known_role(message) for message in messages]
        if not chat:
            raise RequestError("messages must not be empty", "messages")
        chat = self._with_system_kept(chat)
        spoofed = [index for index, message in enumerate(chat) if self._spells_special(message.content)]
        if spoofed:
            return self._quote(chat, spoofed)
        return self._encode(self._apply(chat))

    def _with_system_kept(self, chat: list[Message]) -> list[Message]:
        """The chat, with system messages moved into the first user message where the template would lose them."""
        systems = [i for i, message in enumerate(chat) if message.role == "system" and message.content]
        if not systems or self._shows(chat, systems):
            return chat
        return _merged(chat)

    def _shows(self, chat: list[Message], indexes: list[int]) -> bool:
        masked, marks = _mask(chat, indexes)
        try:
            text = self._apply(masked)
        except RequestError:  # some templates refuse the role outright
            return False
        return all(mark in text for mark in marks)

    def _spells_special(self, text: str) -> bool:
        if self._literal:
            return self._spellings.search(text) is not None
        return not self._special.isdisjoint(self._encode(text))

    def _quote(self, chat: list[Message], spoofed: list[int]) -> list[int]:
        """Encode the prompt with the contents of `spoofed` messages as text, special tokens spelt out."""
        masked, marks = _mask(chat, spoofed)
        content = {mark: chat[index].content for mark, index in zip(marks, spoofed, strict=True)}
        parts = re.split(f"({'|'.join(marks)})", self._apply(masked))
        plain = self._apply(chat)
        for contents in (content, {mark: text.strip() for mark, text in content.items()}):
            if "".join(contents.get(part, part) for part in parts) == plain:
                return [id for part in parts for id in self._encode_part(part, contents)]
        raise RequestError(
            "a message spells a special token, and this model's chat template cannot carry it as text", "messages"
        )

    def _encode_part(self, part: str, contents: Mapping[str, str]) -> list[int]:
        if part not in contents:
            return self._encode(part)
        ids: list[int] = self._quoting(contents[part], add_special_tokens=False, split_special_tokens=True)["input_ids"]
        if not self._special.isdisjoint(ids):
            raise RequestError("a message spells a special token that cannot be encoded as text", "messages")
        return ids

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _apply(self, chat: Sequence[Message]) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                [_as_dict(message) for message in chat], tokenize=False, add_generation_prompt=True
            )
        except (TemplateError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise RequestError(f"the model's chat template refuses these messages: {reason}", "messages") from error
        return text


def _as_known_role(message: Message) -> Message:
    if message.role not in ROLES:
        raise RequestError(f"messages of role {message.role!r} are not supported", "messages")
    return replace(message, role="system") if message.role == "developer" else message


def _as_dict(message: Message) -> dict[str, Any]:
    named = {"name": message.name} if message.name is not None else {}
    return {"role": message.role, "content": message.content, **named}


def _mask(chat: list[Message], indexes: list[int]) -> tuple[list[Message], list[str]]:
    """The chat with the contents at `indexes` replaced by unique marks that no template alters; the marks."""
    marks = [f"mark{secrets.token_hex(16)}" for _ in indexes]
    masked = list(chat)
    for index, mark in zip(indexes, marks, strict=True):
        masked[index] = replace(chat[index], content=mark)
    return masked, marks


def _merged(chat: list[Message]) -> list[Message]:
    """System messages as the head of the first user message."""
    head = [message.content for message in chat if message.role == "system" and message.content]
    rest = [message for message in chat if message.role != "system"]
    first = next((i for i, message in enumerate(rest) if message.role == "user"), None)
    if first is None:
        return [Message("user", "\n\n".join(head)), *rest]
    rest[first] = replace(rest[first], content="\n\n".join([*head, rest[first].content]))
    return rest
