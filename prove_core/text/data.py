"""Prompts and answers as data files give them, and their way to token ids."""

import copy
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from prove_core.text.jsonl import Record
from prove_core.text.prompt import ROLES, Message, PromptRenderer
from prove_core.types import TokenIds


@dataclass(frozen=True, slots=True)
class Chat:
    """The messages of a prompt, as text."""

    messages: tuple[Message, ...]


Prompt = Chat | TokenIds  # ids: rendered already
Answer = str | TokenIds  # ids: complete already, with their end if they have one


def parse_prompt(record: Record) -> Prompt:
    """A line's prompt: `messages` (as in OpenAI's API, text only), else `question` or `prompt`: a user message's text.

    `prompt` may be a list of token ids instead. Raises ValueError.
    """
    key = next((key for key in ("messages", "question", "prompt") if record.get(key) is not None), None)
    if key is None:
        raise ValueError("no `prompt`, `question` or `messages`")
    value = record[key]
    if key == "messages":
        return Chat(_messages(value))
    if isinstance(value, str):
        if not value.strip():
            raise ValueError(f"`{key}` is empty")
        return Chat((Message("user", value),))
    if key == "prompt":
        return _ids(value, "`prompt` must be text or a non-empty list of token ids")
    raise ValueError(f"`{key}` must be text")


def parse_answer(record: Record) -> Answer:
    """A line's `answer`: text, or token ids. Raises ValueError."""
    value = record.get("answer")
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("`answer` is empty")
        return value
    return _ids(value, "`answer` must be text or a non-empty list of token ids")


def _messages(value: Any) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("`messages` must be a non-empty list")
    messages = tuple(_message(item, f"messages[{index}]") for index, item in enumerate(value))
    if messages[-1].role == "assistant":
        raise ValueError("`messages` must not end with the assistant's: an answer belongs under `answer`")
    return messages


def _message(value: Any, place: str) -> Message:
    if not isinstance(value, dict):
        raise ValueError(f"`{place}` must be an object with `role` and `content`")
    role, name = value.get("role"), value.get("name")
    if role not in ROLES:
        raise ValueError(f"`{place}.role` must be one of {', '.join(sorted(ROLES))}, not {role!r}")
    if name is not None and not isinstance(name, str):
        raise ValueError(f"`{place}.name` must be text")
    if unknown := sorted(key for key in value if key not in ("role", "content", "name") and value[key] is not None):
        raise ValueError(f"`{place}.{unknown[0]}` is not supported")
    return Message(role, _content(value.get("content"), place), name)


def _content(value: Any, place: str) -> str:
    """Text, or a list of text parts, joined as the API joins them."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError(f"`{place}.content` must be text or a list of text parts")
    return "\n".join(_part(part, place) for part in value)


def _part(value: Any, place: str) -> str:
    text = value.get("text") if isinstance(value, dict) and value.get("type") == "text" else None
    if not isinstance(text, str):
        raise ValueError(f"`{place}.content` must be text or a list of text parts")
    return text


def _ids(value: Any, complaint: str) -> TokenIds:
    if not isinstance(value, list) or not value:
        raise ValueError(complaint)
    for item in value:
        if type(item) is not int:
            raise ValueError(f"{complaint}, not of {item!r}")
    return tuple(value)


def ends_first(tokenizer: PreTrainedTokenizerBase, eos_ids: TokenIds) -> TokenIds:
    """`eos_ids` with the one in front with which the chat template ends an assistant's message.

    Checkpoints with several name them in any order: Llama 3 and Gemma list the end of a document first.
    """
    end = next((index for index in _after_answer(tokenizer) if index in eos_ids), None)
    return eos_ids if end is None else (end, *(index for index in eos_ids if index != end))


def _after_answer(tokenizer: PreTrainedTokenizerBase) -> TokenIds:
    mark = f"mark{secrets.token_hex(16)}"
    chat = [{"role": "user", "content": "x"}, {"role": "assistant", "content": mark}]
    try:
        text: str = tokenizer.apply_chat_template(chat, tokenize=False)
    except (TemplateError, TypeError, ValueError):  # no template, or one of its own mind
        return ()
    return tuple(tokenizer(text.partition(mark)[2], add_special_tokens=False)["input_ids"])


class DataTokenizer:
    """Turns prompts and answers into ids for one checkpoint. Chats need its chat template; ids pass as they are."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, eos_ids: TokenIds) -> None:
        self._tokenizer = tokenizer
        self._end = ends_first(tokenizer, eos_ids)[:1]

    def prompt(self, prompt: Prompt) -> TokenIds:
        """Ends where the answer begins. Raises RequestError, or CheckpointError without a template."""
        return tuple(self._renderer.render(prompt.messages)) if isinstance(prompt, Chat) else prompt

    def answer(self, answer: Answer) -> TokenIds:
        """Text gets the end of the assistant's message; special tokens spelt in it stay text."""
        if not isinstance(answer, str):
            return answer
        ids = self._quoting(answer, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return (*ids, *self._end)

    @cached_property
    def _renderer(self) -> PromptRenderer:
        return PromptRenderer(self._tokenizer)

    @cached_property
    def _quoting(self) -> PreTrainedTokenizerBase:
        return copy.deepcopy(self._tokenizer)  # splitting special tokens is a state of the tokenizer, not of a call


def check_ids(ids: TokenIds, key: str, vocabulary: int) -> TokenIds:
    """`ids` if each is below `vocabulary`. Raises ValueError."""
    for value in ids:
        if not 0 <= value < vocabulary:
            raise ValueError(f"`{key}` holds {value}, which is no token id below {vocabulary}")
    return ids
