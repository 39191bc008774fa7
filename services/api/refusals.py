"""Request fields that are known but not supported: refused by name unless they ask for nothing."""

from collections.abc import Mapping

from pydantic_core import PydanticCustomError

Neutral = tuple[object, ...]
NO: Neutral = (False,)
NONE: Neutral = ([],)
EMPTY: Neutral = ({},)

# Field -> values that change nothing, besides null. OpenAI's fields first, then those that vLLM adds.
REQUEST_FIELDS: Mapping[str, Neutral] = {
    "audio": (),
    "function_call": ("none",),
    "functions": NONE,
    "metadata": EMPTY,
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "prompt_cache_retention": (),
    "reasoning_effort": ("none",),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "store": NO,
    "tool_choice": ("none",),
    "tools": NONE,
    "verbosity": ("medium",),
    "web_search_options": (),
    "add_generation_prompt": (True,),
    "add_special_tokens": NO,
    "allowed_token_ids": (),
    "bad_words": NONE,
    "best_of": (1,),
    "cache_salt": (),
    "chat_template": (),
    "chat_template_kwargs": EMPTY,
    "continue_final_message": NO,
    "documents": NONE,
    "echo": NO,
    "guided_choice": (),
    "guided_decoding_backend": (),
    "guided_grammar": (),
    "guided_json": (),
    "guided_regex": (),
    "include_reasoning": (True, False),
    "include_stop_str_in_output": NO,
    "length_penalty": (1, 1.0),
    "logits_processors": NONE,
    "mm_processor_kwargs": EMPTY,
    "prompt_logprobs": (),
    "return_token_ids": NO,
    "skip_special_tokens": (True,),
    "spaces_between_special_tokens": (True,),
    "structured_outputs": (),
    "thinking": (),
    "truncate_prompt_tokens": (),
    "use_beam_search": NO,
}

# An assistant message that a client sends back carries these, all empty.
MESSAGE_FIELDS: Mapping[str, Neutral] = {
    "annotations": NONE,
    "audio": (),
    "function_call": (),
    "reasoning": (),
    "reasoning_content": (),
    "refusal": (),
    "tool_call_id": (),
    "tool_calls": NONE,
}

STREAM_OPTION_FIELDS: Mapping[str, Neutral] = {
    "continuous_usage_stats": NO,
    "include_obfuscation": NO,
}


def refuse(data: object, fields: Mapping[str, Neutral]) -> object:
    """`data` without those of `fields` that ask for nothing. Raises for the first that asks for something."""
    if not isinstance(data, dict):
        return data
    for name, value in data.items():
        if name in fields and not _is_neutral(value, fields[name]):
            raise unsupported("is not supported", name)
    return {name: value for name, value in data.items() if name not in fields}


def unsupported(predicate: str, param: str | None = None) -> PydanticCustomError:
    """A validator's error about something we know but do not do."""
    return invalid(predicate, param, code="unsupported_parameter")


def invalid(predicate: str, param: str | None = None, *, code: str = "invalid_value") -> PydanticCustomError:
    """A validator's error that reads "<field> <predicate>". `param`: the field, when the validator is its model's."""
    # The predicate goes in as a value: braces in it are no placeholders.
    return PydanticCustomError(code, "{predicate}", {"predicate": predicate, "param": param})


def _is_neutral(value: object, neutral: Neutral) -> bool:
    return value is None or any(type(value) is type(other) and value == other for other in neutral)
