"""Replies from events, as the openai client reads them."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Model
from openai.types.chat import ChatCompletion as OpenAICompletion
from openai.types.chat import ChatCompletionChunk

from prove_core.errors import PoolExhausted
from prove_core.statistics import CompletionStatistics
from prove_core.types import Cost, FinishReason, Mode, Step
from services.api.replies import Head, Metrics, ModelCard, ModelList, SpeculativeDecoding, Usage
from services.api.streaming import Delta, Ended, Event, Summary, collect, started, stream


def summary() -> Summary:
    first, second = CompletionStatistics(Mode.PROVE), CompletionStatistics(Mode.PROVE)
    propose, verify = Cost(1, 1, 0, 0.5), Cost(0, 0, 1, 0.25)
    for step in (
        Step((1,), 0, 0, propose),
        Step((2, 3), 3, 2, verify),
        Step((4,), 0, 0, propose),
        Step((), 1, 0, verify),
    ):
        first.add(step)
    second.add(Step((1,), 0, 0, propose))
    second.add(Step((2,), 4, 1, verify))
    report = SpeculativeDecoding.of([first, second], total_seconds=1.5, first_token_seconds=0.25)
    return Summary(Usage.of(7, 6), Metrics(speculative_decoding=report))


SUMMARY = summary()


class Source:
    """Events as an async generator that knows whether it was closed."""

    def __init__(self, events: Sequence[Event], failure: Exception | None = None) -> None:
        self.closed = False
        self._events = events
        self._failure = failure

    async def __call__(self) -> AsyncGenerator[Event, None]:
        try:
            for event in self._events:
                await asyncio.sleep(0)
                yield event
            if self._failure is not None:
                raise self._failure
        finally:
            self.closed = True


def frames(source: Source, *, choices: int = 1, include_usage: bool = False) -> list[Any]:
    """The payloads of a stream; its end marker is checked and left out."""

    async def run() -> bytes:
        head = Head.new("m", choices)
        return b"".join([frame async for frame in stream(source(), head, include_usage=include_usage)])

    raw = asyncio.run(run()).decode()
    assert raw.endswith("\n\n")
    lines = raw.removesuffix("\n\n").split("\n\n")
    assert all(line.startswith("data: ") and "\n" not in line for line in lines)
    assert lines.pop() == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def test_one_choice() -> None:
    source = Source([Delta(0, "Hel"), Delta(0, ""), Delta(0, "lo\n\n"), Ended(0, FinishReason.STOP), SUMMARY])
    chunks = [ChatCompletionChunk.model_validate(frame) for frame in frames(source)]
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    choices = [chunk.choices[0] for chunk in chunks]
    assert [choice.delta.role for choice in choices] == ["assistant", None, None, None]
    assert [choice.delta.content for choice in choices] == ["", "Hel", "lo\n\n", None]
    assert [choice.finish_reason for choice in choices] == [None, None, None, "stop"]
    assert all(chunk.usage is None for chunk in chunks)
    assert source.closed


def test_usage_is_the_last_chunk_and_null_before() -> None:
    source = Source([Delta(0, "a"), Ended(0, FinishReason.LENGTH), SUMMARY])
    *inner, last = frames(source, include_usage=True)
    assert all(frame["usage"] is None for frame in inner)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 7, "completion_tokens": 6, "total_tokens": 13}
    report = last["metrics"]["speculative_decoding"]
    assert report["mode"] == "prove"
    assert (report["cycles"], report["drafts"], report["draft_tokens"], report["accepted_tokens"]) == (3, 3, 8, 3)
    assert report["accepted_per_position"] == [2, 1, 0, 0]
    assert report["committed_tokens"] == 6
    assert report["passes"] == {"proposer": 3, "verifier": 3}
    assert report["pass_seconds"] == 2.25
    assert ChatCompletionChunk.model_validate(last).usage is not None


def test_usage_is_absent_unless_asked_for() -> None:
    source = Source([Delta(0, "a"), Ended(0, FinishReason.LENGTH), SUMMARY])
    assert all("usage" not in frame for frame in frames(source))


def test_a_choice_without_text_still_introduces_itself_and_ends() -> None:
    first, last = frames(Source([Ended(0, FinishReason.STOP), SUMMARY]))
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0] == {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}


@st.composite
def interleavings(draw: st.DrawFn) -> tuple[int, list[Event]]:
    choices = draw(st.integers(1, 4))
    queues: list[list[Event]] = []
    for index in range(choices):
        texts = draw(st.lists(st.text("ab\n é\u2028😀", max_size=4), max_size=4))
        queues.append([*(Delta(index, text) for text in texts), Ended(index, draw(st.sampled_from(FinishReason)))])
    events: list[Event] = []
    while queues := [queue for queue in queues if queue]:
        events.append(draw(st.sampled_from(queues)).pop(0))
    return choices, [*events, SUMMARY]


@given(interleavings())
def test_joined_deltas_are_the_whole_reply(reply: tuple[int, list[Event]]) -> None:
    choices, events = reply
    chunks = [ChatCompletionChunk.model_validate(frame) for frame in frames(Source(events), choices=choices)]
    whole = asyncio.run(collect(Source(events)(), Head.new("m", choices)))
    parsed = OpenAICompletion.model_validate_json(whole.model_dump_json())
    assert [choice.index for choice in parsed.choices] == list(range(choices))
    for choice in parsed.choices:
        mine = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == choice.index]
        assert "".join(part.delta.content or "" for part in mine) == choice.message.content
        assert [part.finish_reason for part in mine] == [None] * (len(mine) - 1) + [choice.finish_reason]
        assert [part.delta.role for part in mine] == ["assistant"] + [None] * (len(mine) - 1)


@pytest.mark.parametrize(
    ("failure", "code"), [(PoolExhausted("needs 9 pages"), "cache_too_small"), (KeyError("secret"), None)]
)
def test_a_failure_in_mid_stream_is_an_error_frame(failure: Exception, code: str | None) -> None:
    source = Source([Delta(0, "a")], failure)
    *inner, last = frames(source, include_usage=True)
    assert len(inner) == 2
    assert set(last) == {"error"}
    assert last["error"]["code"] == code
    assert "secret" not in json.dumps(last)
    assert all(frame["choices"][0]["finish_reason"] is None for frame in inner)
    assert source.closed


@pytest.mark.parametrize(
    "events",
    [
        [],
        [Delta(0, "a")],
        [Ended(0, FinishReason.STOP)],
        [Ended(0, FinishReason.STOP), Ended(1, FinishReason.STOP)],
        [Ended(0, FinishReason.STOP), SUMMARY],
    ],
)
def test_events_that_end_too_early_are_a_failure_not_a_finish(events: list[Event]) -> None:
    *_, last = frames(Source(events), choices=2, include_usage=True)
    assert last["error"]["type"] == "server_error"
    with pytest.raises(RuntimeError):
        asyncio.run(collect(Source(events)(), Head.new("m", 2)))


def test_a_reader_that_leaves_closes_the_events() -> None:
    source = Source([Delta(0, "a"), Delta(0, "b"), Ended(0, FinishReason.STOP), SUMMARY])

    async def run() -> None:
        reader = stream(await started(source()), Head.new("m"))
        await anext(reader)
        await reader.aclose()

    asyncio.run(run())
    assert source.closed


def test_started_raises_what_fails_before_the_first_event() -> None:
    with pytest.raises(PoolExhausted):
        asyncio.run(started(Source([], PoolExhausted("no"))()))


def test_started_keeps_every_event() -> None:
    events: list[Event] = [Delta(0, "a"), Ended(0, FinishReason.STOP), SUMMARY]

    async def run() -> list[Event]:
        replayed: AsyncIterator[Event] = await started(Source(events)())
        return [event async for event in replayed]

    assert asyncio.run(run()) == events


def test_started_events_are_closed_even_if_nobody_reads_them() -> None:
    source = Source([Delta(0, "a"), SUMMARY])

    async def run() -> None:
        await (await started(source())).aclose()

    asyncio.run(run())
    assert source.closed


def test_whole_reply() -> None:
    events: list[Event] = [Delta(0, "a"), Delta(0, "b"), Ended(0, FinishReason.LENGTH), SUMMARY]
    reply = asyncio.run(collect(Source(events)(), Head.new("m")))
    parsed = OpenAICompletion.model_validate_json(reply.model_dump_json())
    assert parsed.choices[0].message.content == "ab"
    assert parsed.choices[0].finish_reason == "length"
    assert parsed.usage is not None
    assert parsed.usage.total_tokens == 13
    extra = parsed.model_extra
    assert extra is not None
    assert extra["metrics"]["speculative_decoding"]["tokens_per_cycle"] == 2


def test_model_list() -> None:
    body = ModelList(data=[ModelCard(id="m", created=1)]).model_dump()
    assert Model.model_validate(body["data"][0]).id == "m"
