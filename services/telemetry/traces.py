"""OpenTelemetry traces: a span per request, in it one per cycle of each choice, and in that one per phase.

What happens in a replica comes back as durations, so the phases of a cycle are laid one after another, in the order in
which they mostly happen, up to the moment at which the cycle's last tokens arrived.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from prove_core.types import Cost
from services.metrics.requests import RequestMeter, phases
from services.telemetry.origin import Origin
from services.telemetry.settings import TracingSettings

if TYPE_CHECKING:  # an optional dependency, and slow to import
    from opentelemetry.trace import Span, Tracer

MOST_WAITING = 1 << 14  # spans not exported yet; a request of 100 cycles has some 500
ORDER = ("queue", "channel", "propose", "verify", "gate")
FAULTS = ("timeout", "failed")


def tracer(settings: TracingSettings, replica: str) -> "Tracer | None":
    """What makes the spans of this process, exported in batches in the background; None for no traces."""
    if settings.otlp_endpoint is None:
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio  # noqa: PLC0415

    resource = Resource.create({"service.name": "prove", "service.instance.id": replica})
    provider = TracerProvider(ParentBasedTraceIdRatio(settings.sample), resource)
    exporter = OTLPSpanExporter(endpoint=settings.otlp_endpoint)
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=MOST_WAITING))
    return provider.get_tracer("prove")


@contextmanager
def traced(tracer: "Tracer | None", origin: Origin, meter: RequestMeter) -> Iterator[None]:
    """Around the request that `meter` measures: its span, a child of what the client's `traceparent` names."""
    if tracer is None:
        yield
        return
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    clock = _Clock()
    carrier = {} if origin.traceparent is None else {"traceparent": origin.traceparent}
    parent = TraceContextTextMapPropagator().extract(carrier)
    span = tracer.start_span("chat.completions", parent, start_time=clock.nanoseconds(origin.arrived))
    if span.is_recording():
        meter.watch = _Cycles(tracer, span, clock)
    try:
        yield
    finally:
        _describe(span, origin, meter)
        span.end()


class _Cycles:
    """Makes the spans below a request's: those of a cycle once it has ended."""

    def __init__(self, tracer: "Tracer", request: "Span", clock: "_Clock") -> None:
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415

        self._tracer = tracer
        self._at = clock.nanoseconds
        self._in = set_span_in_context
        self._request = self._in(request)

    def __call__(self, choice: int, tokens: int, cost: Cost, began: float, ended: float) -> None:
        """`began` and `ended` as `time.perf_counter` tells them."""
        cycle = self._tracer.start_span("cycle", self._request, start_time=self._at(began))
        cycle.set_attributes({"prove.choice": choice, "prove.tokens": tokens})
        spent = phases(cost)
        at = ended - sum(spent.values())
        for phase in sorted(spent, key=ORDER.index):
            span = self._tracer.start_span(phase, self._in(cycle), start_time=self._at(at))
            at += spent[phase]
            span.end(self._at(at))
        cycle.end(self._at(ended))


def _describe(span: "Span", origin: Origin, meter: RequestMeter) -> None:
    from opentelemetry.trace import StatusCode  # noqa: PLC0415

    outcome = str(meter.outcome)
    span.set_attributes(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.usage.input_tokens": meter.prompt_tokens,
            "gen_ai.usage.output_tokens": sum(choice.tokens for choice in meter.choices),
            "prove.request_id": origin.id,
            "prove.mode": meter.metrics.mode.value,
            "prove.outcome": outcome,
        }
    )
    if outcome in FAULTS:
        span.set_status(StatusCode.ERROR, outcome)


class _Clock:
    """Turns times of `time.perf_counter` into nanoseconds since the epoch, all by the same offset."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.perf_counter_ns()

    def nanoseconds(self, seconds: float) -> int:
        return self._offset + int(seconds * 1e9)
