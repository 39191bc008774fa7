"""The sections `logging` and `tracing` of the configuration."""

import importlib.util
from typing import Literal, Self

from pydantic import Field, model_validator

from prove_core.config import Frozen

EXPORTER = "opentelemetry.exporter.otlp.proto.http"


class LoggingSettings(Frozen):
    """What replicas write to their standard error."""

    format: Literal["text", "json"] = Field(default="text", description="json: one object a line.")
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        default="INFO", description="INFO: a line per request when it ends; DEBUG: sessions on their replicas as well."
    )


class TracingSettings(Frozen):
    """Where traces go."""

    otlp_endpoint: str | None = Field(
        default=None, description="A collector's URL (OTLP over HTTP, .../v1/traces); null: no traces. Extra `otel`."
    )
    sample: float = Field(default=1.0, ge=0, le=1, description="Share of the requests whose client does not decide.")

    @model_validator(mode="after")
    def _can_export(self) -> Self:
        if self.otlp_endpoint is not None and not _installed():
            raise ValueError("otlp_endpoint needs the extra `otel`: pip install 'prove-serve[otel]'")
        return self


def _installed() -> bool:
    try:
        return importlib.util.find_spec(EXPORTER) is not None
    except ModuleNotFoundError:
        return False
