"""A reply from the events of its choices: as server-sent events, or whole."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType

from pydantic_core import to_json

from prove_core.types import FinishReason
from services.api.errors import to_api_error
from services.api.logprobs import ChoiceLogprobs, ContentScore
from services.api.replies import ChatCompletion, Choice, Head, Metrics, ReplyMessage, Usage
from services.api.trace import CommitTrace

DONE = b"data: [DONE]\n\n"
NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Delta:
    """Text that choice `index` gained; of its tokens the `logprobs` (None: nobody asks) and how they were decoded."""

    index: int
    text: str
    trace: CommitTrace | None = None
    logprobs: list[ContentScore] | None = None

    def __bool__(self) -> bool:
        """Whether a client has anything to learn of it."""
        return bool(self.text or self.trace or self.logprobs)


@dataclass(frozen=True, slots=True)
class Ended:
    """Choice `index` is complete."""

    index: int
    reason: FinishReason


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole reply is complete; last of all events."""

    usage: Usage
    metrics: Metrics


Event = Delta | Ended | Summary
Events = AsyncGenerator[Event, None]


async def stream(events: Events, head: Head, *, include_usage: bool = False) -> AsyncGenerator[bytes, None]:
    """The reply as server-sent events. Closes `events` however it ends.

    A failure of `events`, or their end before every choice has ended, becomes an error frame: the client never sees
    an invented finish reason. Statistics ride on the usage chunk.
    """
    frames = _Frames(head, include_usage)
    try:
        async with aclosing(_complete(events, head.choices)) as checked:
            async for event in checked:
                for frame in frames.of(event):
                    yield frame
    except Exception as error:
        yield _frame(to_api_error(error).body())
    yield DONE


async def collect(events: Events, head: Head) -> ChatCompletion:
    """The reply as a whole. Closes `events` however it ends; raises what they raise."""
    texts = [""] * head.choices
    scores: dict[int, ChoiceLogprobs] = {}
    reasons: dict[int, FinishReason] = {}
    async with aclosing(_complete(events, head.choices)) as checked:
        async for event in checked:
            match event:
                case Delta(index, text, _, logprobs):
                    texts[index] += text
                    if logprobs is not None:
                        scores.setdefault(index, ChoiceLogprobs()).content.extend(logprobs)
                case Ended(index, reason):
                    reasons[index] = reason
                case Summary(usage, metrics):
                    choices = [
                        Choice(
                            index=i,
                            message=ReplyMessage(content=text),
                            logprobs=scores.get(i),
                            finish_reason=reasons[i],
                        )
                        for i, text in enumerate(texts)
                    ]
    return ChatCompletion(
        id=head.id, created=head.created, model=head.model, choices=choices, usage=usage, metrics=metrics
    )


async def started(events: Events) -> Events:
    """`events` once the first has arrived: a failure before it still gets its HTTP status."""
    replaying = _first_twice(events)
    await anext(replaying, None)
    return replaying


async def _first_twice(events: Events) -> Events:
    # A generator that has not started would not close `events`, so `started` starts it with a first event of its own.
    async with aclosing(events):
        first = True
        async for event in events:
            if first:
                yield event
                first = False
            yield event


async def _complete(events: Events, choices: int) -> Events:
    """The events; raises when they end, or summarise, before each choice has ended."""
    open_choices = set(range(choices))
    async with aclosing(events):
        async for event in events:
            match event:
                case Ended(index):
                    open_choices.remove(index)
                case Summary():
                    break
            yield event
        else:
            raise RuntimeError("the events of a reply ended without a summary")
    if open_choices:
        raise RuntimeError(f"choices {sorted(open_choices)} of a reply never ended")
    yield event


class _Frames:
    """Events to frames; remembers which choices have introduced themselves."""

    def __init__(self, head: Head, include_usage: bool) -> None:
        self._head = {
            "id": head.id,
            "object": "chat.completion.chunk",
            "created": head.created,
            "model": head.model,
        }
        self._include_usage = include_usage
        self._introduced: set[int] = set()

    def of(self, event: Event) -> list[bytes]:
        """The frames that tell of an event."""
        match event:
            case Delta(index):
                return [*self._introduction(index), self._delta(event)] if event else []
            case Ended(index, reason):
                return [*self._introduction(index), self._chunk(index, {}, reason)]
            case Summary(usage, metrics):
                final = {**self._head, "choices": [], "usage": usage, "metrics": metrics}
                return [_frame(final)] if self._include_usage else []

    def _introduction(self, index: int) -> list[bytes]:
        if index in self._introduced:
            return []
        self._introduced.add(index)
        return [self._chunk(index, {"role": "assistant", "content": ""})]

    def _delta(self, event: Delta) -> bytes:
        more: dict[str, object] = {} if event.trace is None else {"decoding": event.trace}
        if event.logprobs:
            more["logprobs"] = ChoiceLogprobs(content=event.logprobs)
        return self._chunk(event.index, {"content": event.text}, more=more)

    def _chunk(
        self,
        index: int,
        delta: dict[str, str],
        reason: FinishReason | None = None,
        more: Mapping[str, object] = NOTHING,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason, **more}
        usage = {"usage": None} if self._include_usage else {}
        return _frame({**self._head, "choices": [choice], **usage})


def _frame(payload: object) -> bytes:
    return b"data: " + to_json(payload) + b"\n\n"
