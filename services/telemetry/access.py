"""The log's line about each request when it ends. It says nothing of what was asked or answered."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from services.api.errors import expected
from services.metrics.requests import RequestMeter, outcome_of

logger = logging.getLogger(__name__)


@contextmanager
def told(meter: RequestMeter) -> Iterator[None]:
    """Around a request that `meter` measures."""
    try:
        yield
    finally:
        logger.info("request ended", extra=_fields(meter))


def tell_refusal(error: BaseException) -> None:
    """The line about a request that was refused with `error` before it began."""
    shown = expected(error)
    logger.info("request refused", extra={"outcome": outcome_of(error), "code": shown.code if shown else None})


def _fields(meter: RequestMeter) -> dict[str, object]:
    first = meter.first_token_seconds
    return {
        "mode": meter.metrics.mode.value,
        "outcome": meter.outcome,
        "prompt_tokens": meter.prompt_tokens,
        "completion_tokens": sum(choice.tokens for choice in meter.choices),
        "cycles": sum(choice.cycles for choice in meter.choices),
        "first_token_ms": None if first is None else round(1000 * first, 1),
        "total_ms": round(1000 * meter.seconds, 1),
    }
