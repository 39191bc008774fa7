"""Reading a streamed reply."""

import json
from typing import Any


def payloads(text: str) -> list[dict[str, Any]]:
    """The payloads of a stream, whose end marker is checked."""
    lines = [line for line in text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def joined(chunks: list[dict[str, Any]], index: int = 0) -> str:
    """The text of one choice."""
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get("content", "") for choice in choices)
