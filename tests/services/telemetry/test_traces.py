"""Traces: spans of a request, its cycles and their phases, nested in time and below what the client named."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import StatusCode, Tracer

from services.config.settings import SettingsError, parse_settings
from services.telemetry import settings as telemetry
from services.telemetry.settings import TracingSettings
from services.telemetry.traces import ORDER, tracer
from tests.services.toy_engine import run_in_loop
from tests.services.toy_server import body, toy_server

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def _traced(sample: float = 1.0) -> tuple[InMemorySpanExporter, Tracer]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(ParentBasedTraceIdRatio(sample))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, provider.get_tracer("test")


def _children(spans: tuple[ReadableSpan, ...], of: ReadableSpan) -> list[ReadableSpan]:
    return [span for span in spans if span.parent is not None and span.parent.span_id == of.context.span_id]


def _times(span: ReadableSpan) -> Iterator[int]:
    for at in (span.start_time, span.end_time):
        assert at is not None
        yield at


@pytest.mark.parametrize("mode", ["prove", "lossless"])
def test_a_request_is_a_tree_of_cycles_and_phases(mode: str) -> None:
    exporter, spans_of = _traced()

    async def run() -> dict[str, int]:
        async with toy_server(tracer=spans_of) as server:
            head = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "mine"}
            fields = body(max_tokens=20, n=2, decoding={"mode": mode})
            reply = await server.client.post("/v1/chat/completions", json=fields, headers=head)
            return dict(reply.json()["metrics"]["speculative_decoding"] | reply.json()["usage"])

    told: dict[str, int] = {}

    async def main() -> None:
        told.update(await run())

    run_in_loop(main())
    spans = exporter.get_finished_spans()
    (request,) = (span for span in spans if span.name == "chat.completions")
    assert {f"{span.context.trace_id:032x}" for span in spans} == {TRACE}
    assert request.parent is not None
    assert f"{request.parent.span_id:016x}" == PARENT
    assert request.attributes is not None
    assert request.attributes["prove.request_id"] == "mine"
    assert request.attributes["gen_ai.usage.output_tokens"] == told["completion_tokens"]
    cycles = _children(spans, request)
    assert len(cycles) == told["cycles"]
    assert sum(int((cycle.attributes or {})["prove.tokens"]) for cycle in cycles) == told["completion_tokens"]  # type: ignore[arg-type]
    for cycle in cycles:
        phases = _children(spans, cycle)
        assert {"propose", "gate", "queue"} <= {phase.name for phase in phases} <= set(ORDER)
        assert ("channel" in {phase.name for phase in phases}) == (mode == "prove")
        starts, ends = zip(*map(_times, phases), strict=True)
        assert max(ends) <= tuple(_times(cycle))[1] + 1000
        assert sorted(starts) == list(starts)


def test_failures_are_marked() -> None:
    exporter, spans_of = _traced()

    async def run() -> None:
        async with toy_server(tracer=spans_of, limits={"request_timeout_s": 0.01}) as server:
            await server.ask(max_tokens=1500, ignore_eos=True)

    run_in_loop(run())
    (request,) = (span for span in exporter.get_finished_spans() if span.name == "chat.completions")
    assert request.status.status_code is StatusCode.ERROR
    assert request.attributes is not None
    assert request.attributes["prove.outcome"] == "timeout"


def test_only_a_sample_is_traced() -> None:
    exporter, spans_of = _traced(sample=0.0)

    async def run() -> None:
        async with toy_server(tracer=spans_of) as server:
            assert (await server.ask(max_tokens=4)).status_code == 200

    run_in_loop(run())
    assert not exporter.get_finished_spans()


def test_without_an_endpoint_there_is_no_tracer() -> None:
    assert tracer(TracingSettings(), "r") is None
    assert tracer(TracingSettings(otlp_endpoint="http://127.0.0.1:4318/v1/traces"), "r") is not None


def test_an_endpoint_without_the_extra_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "EXPORTER", "opentelemetry.no.such.exporter")
    with pytest.raises(SettingsError, match=r"tracing: otlp_endpoint needs the extra `otel`"):
        parse_settings({"tracing": {"otlp_endpoint": "http://127.0.0.1:4318/v1/traces"}}, "test")
