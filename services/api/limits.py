"""Whether a request keeps to what this server allows."""

from collections.abc import Iterator

from prove_core.errors import RequestError
from services.admission.settings import AdmissionSettings
from services.api.schema import ChatCompletionRequest
from services.config.limits import RequestLimits


def check_limits(request: ChatCompletionRequest, limits: RequestLimits) -> None:
    """Raise `RequestError` that names the first field beyond its limit."""
    for field, count, most, what in _counts(request, limits):
        if most is not None and count > most:
            raise RequestError(f"{field} is limited to {most} {what}on this server", field)


def check_prompt(tokens: int, limits: RequestLimits) -> None:
    """Raise `RequestError` for a prompt of more `tokens` than allowed."""
    most = limits.max_prompt_tokens
    if most is not None and tokens > most:
        raise RequestError(f"messages have {tokens} tokens; this server takes at most {most}", "messages")


def check_may_wait(prompt: int, request: ChatCompletionRequest, admission: AdmissionSettings) -> None:
    """Raise `RequestError` for one whose prompt and completion are more tokens than all that may wait together.

    While others run or wait it would be turned away, however often it came back.
    """
    most, asked = admission.most_waiting, request.completion_limit
    if most is None or prompt + (asked or 1) <= most:
        return
    bound = f"this server takes at most {most} for prompt and completion together (admission.max_queued_tokens)"
    if asked is None or prompt >= most:
        raise RequestError(f"messages have {prompt} tokens; {bound}", "messages")
    field = request.completion_field
    raise RequestError(f"messages have {prompt} tokens and {field} is {asked}; {bound}", field)


def _counts(request: ChatCompletionRequest, limits: RequestLimits) -> Iterator[tuple[str, int, int | None, str]]:
    stops = request.stop or ()
    yield "messages", len(request.messages), limits.max_messages, "messages "
    yield "n", request.n or 1, limits.max_choices, ""
    yield "stop", len(stops), limits.max_stops, "strings "
    yield "stop", max(map(len, stops), default=0), limits.max_stop_length, "characters a string "
    yield "stop_token_ids", len(request.stop_token_ids or ()), limits.max_stops, "ids "
    yield "logit_bias", len(request.logit_bias or {}), limits.max_logit_biases, "entries "
    yield request.completion_field, request.completion_limit or 1, limits.max_completion_tokens, ""
