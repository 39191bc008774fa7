"""How long a completion may become in the model's context."""

from prove_core.errors import ContextLengthExceeded


def completion_limit(prompt_tokens: int, max_tokens: int | None, context_length: int, field: str = "max_tokens") -> int:
    """`max_tokens`, or all the room there is when None.

    Raises `ContextLengthExceeded` when it does not fit, which names the messages or `field`.
    """
    room = context_length - prompt_tokens
    if room < 1:
        raise ContextLengthExceeded(
            f"This model's maximum context length is {context_length} tokens, and your messages resulted in "
            f"{prompt_tokens} tokens, which leaves no room for a completion. Please shorten the messages.",
            "messages",
        )
    if max_tokens is None:
        return room
    if max_tokens > room:
        raise ContextLengthExceeded(
            f"This model's maximum context length is {context_length} tokens. However, you requested "
            f"{prompt_tokens + max_tokens} tokens ({prompt_tokens} in the messages, {max_tokens} in the completion). "
            "Please reduce the length of the messages or of the completion.",
            field,
        )
    return max_tokens
