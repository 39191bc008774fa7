"""The openai client on our wire format, without models: a fixed reply behind a real application."""

import asyncio
from collections.abc import AsyncGenerator

import httpx
import openai
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from prove_core.errors import EngineStopped
from prove_core.statistics import CompletionStatistics
from prove_core.types import Cost, FinishReason, Mode, Step
from services.api.body import read_json_body
from services.api.errors import install, model_not_found
from services.api.replies import ChatCompletion, Head, Metrics, SpeculativeDecoding, Usage
from services.api.schema import ChatCompletionRequest
from services.api.streaming import Delta, Ended, Event, Summary, collect, started, stream


async def reply(*, fails: bool) -> AsyncGenerator[Event, None]:
    statistics = CompletionStatistics(Mode.AR)
    for text in ("Hel", "lo"):
        statistics.add(Step((1,), cost=Cost(1, 1)))
        yield Delta(0, text)
    if fails:
        raise EngineStopped("the engine has stopped")
    yield Ended(0, FinishReason.STOP)
    report = SpeculativeDecoding.of([statistics], total_seconds=0.1)
    yield Summary(Usage.of(3, 2), Metrics(speculative_decoding=report))


def application() -> FastAPI:
    app = FastAPI()
    install(app)

    @app.post("/v1/chat/completions", response_model=None)
    async def complete(http: Request) -> ChatCompletion | StreamingResponse:
        request = ChatCompletionRequest.parse(await read_json_body(http, 10_000))
        if request.model not in ("fixed", "failing"):
            raise model_not_found(request.model)
        head, events = Head.new(request.model), reply(fails=request.model == "failing")
        if not request.stream:
            return await collect(events, head)
        frames = stream(await started(events), head, include_usage=request.include_usage)
        return StreamingResponse(frames, media_type="text/event-stream")

    return app


@pytest.fixture
def client() -> openai.AsyncOpenAI:
    transport = httpx.ASGITransport(application(), raise_app_exceptions=False)
    http = httpx.AsyncClient(transport=transport)
    return openai.AsyncOpenAI(api_key="none", base_url="http://test/v1", http_client=http, max_retries=0)


def test_whole_and_streamed(client: openai.AsyncOpenAI) -> None:
    async def run() -> None:
        messages = [{"role": "user", "content": "hi"}]
        whole = await client.chat.completions.create(model="fixed", messages=messages, temperature=0)
        assert whole.choices[0].message.content == "Hello"
        assert whole.usage is not None
        assert whole.model_extra["metrics"]["speculative_decoding"]["cycles"] == 2
        chunks = await client.chat.completions.create(
            model="fixed", messages=messages, stream=True, stream_options={"include_usage": True}
        )
        parts = [chunk async for chunk in chunks]
        assert "".join(part.choices[0].delta.content or "" for part in parts if part.choices) == "Hello"
        assert parts[-1].usage == whole.usage

    asyncio.run(run())


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"model": "gpt"}, openai.NotFoundError, "gpt"),
        ({"model": "fixed", "tools": [{"type": "function"}]}, openai.BadRequestError, "tools is not supported"),
        ({"model": "failing"}, openai.InternalServerError, "stopped"),
        ({"model": "failing", "stream": True}, openai.APIError, "stopped"),
    ],
)
def test_errors(
    client: openai.AsyncOpenAI, fields: dict[str, object], error: type[openai.APIError], message: str
) -> None:
    async def run() -> None:
        answer = await client.chat.completions.create(messages=[{"role": "user", "content": "hi"}], **fields)
        async for _ in answer:
            pass

    with pytest.raises(error, match=message):
        asyncio.run(run())
