"""The whole application on Ray Serve with the default checkpoints, through real HTTP clients."""

import asyncio
import json
import os
import signal
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from ray import serve

from prove_core.engine.stats import EngineStats
from prove_core.evaluation.prompts import read_prompts
from services.app import APP_NAME
from services.config.settings import parse_settings
from services.launch import Running, launch

pytestmark = [pytest.mark.cluster, pytest.mark.model, pytest.mark.timeout(600)]

MODEL = "default-proposer"
GSM8K = Path(__file__).parents[3] / "shared" / "data" / "gsm8k_test.jsonl"
LIKE_GSM8K = [
    "A baker fills 6 trays with 8 rolls each and sells 29 rolls. How many rolls are left?",
    "Tom reads 14 pages a day. How many pages does he read in 3 weeks?",
    "A ticket costs 7 dollars. Ana buys 5 tickets and pays with 50 dollars. How much change does she get?",
    "There are 96 chairs in 8 equal rows. How many chairs are in each row?",
    "A tank holds 120 liters and leaks 4 liters an hour. How much is left after 9 hours?",
    "Mia has twice as many stamps as Leo, who has 37. How many do they have together?",
    "A train goes 80 km in an hour. How far does it go in 2 and a half hours?",
    "Sam earns 12 dollars an hour and works 6 hours on each of 4 days. What does he earn?",
    "A rope of 45 m is cut into pieces of 9 m. How many cuts are needed?",
    "Eggs come in boxes of 12. How many boxes are needed for 100 eggs?",
]
QUESTIONS = read_prompts(GSM8K, 10) if GSM8K.exists() else LIKE_GSM8K
TOKENS = 24


@pytest.fixture(scope="module")
def application() -> Iterator[Running]:
    engine: dict[str, Any] = {"model": {"checkpoint": MODEL, "deterministic": True}, "cache": {"tokens": 16384}}
    verifier = {**engine, "model": {**engine["model"], "checkpoint": "default-verifier"}}
    data = {"port": 0, "proposer": {"engine": engine}, "verifier": {"engine": verifier}}
    with launch(parse_settings(data, "test")) as running:
        yield running


@pytest.fixture
def client(application: Running) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=application.url, timeout=180) as client:
        yield client


def _body(text: str = QUESTIONS[0], **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": TOKENS, **fields}


def _ask(client: httpx.Client, text: str = QUESTIONS[0], **fields: Any) -> str:
    reply = client.post("/v1/chat/completions", json=_body(text, **fields))
    assert reply.status_code == 200, reply.text
    content: str = reply.json()["choices"][0]["message"]["content"]
    return content


def _stream(client: httpx.Client, text: str = QUESTIONS[0], **fields: Any) -> Generator[dict[str, Any]]:
    with client.stream("POST", "/v1/chat/completions", json=_body(text, stream=True, **fields)) as reply:
        for line in reply.iter_lines():
            if line == "data: [DONE]":
                return
            if line:
                yield json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream ended without [DONE]")


def _joined(chunks: list[dict[str, Any]], index: int = 0) -> str:
    choices = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
    return "".join(choice["delta"].get("content", "") for choice in choices)


def _stats(deployment: str) -> EngineStats:
    stats: EngineStats = serve.get_deployment_handle(deployment, APP_NAME).stats.remote().result(timeout_s=30)
    return stats


def _pid(deployment: str) -> int:
    pid: int = serve.get_deployment_handle(deployment, APP_NAME).facts.remote().result(timeout_s=120).pid
    return pid


def _all_pages_back_within(seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        stats = [_stats("Proposer"), _stats("Verifier")]
        if all(s.sessions == 0 and s.free_pages == s.total_pages for s in stats):
            return True
        time.sleep(0.05)
    return False


def test_the_openai_client_gets_the_same_text_from_ar_and_lossless(application: Running) -> None:
    client = openai.OpenAI(base_url=f"{application.url}/v1", api_key="none")

    def text(question: str, mode: str) -> str | None:
        reply = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": question}],
            max_tokens=TOKENS,
            extra_body={"decoding": {"mode": mode}},
        )
        return reply.choices[0].message.content

    for question in QUESTIONS:
        assert text(question, "lossless") == text(question, "ar")


def test_the_openai_client_streams_prove_with_the_verifier_in_another_process(application: Running) -> None:
    pids = {_pid("Proposer"), _pid("Verifier"), os.getpid()}
    assert len(pids) == 3
    assert len({os.getpriority(os.PRIO_PROCESS, pid) for pid in pids}) == 1, "Ray has made its workers nice"
    client = openai.OpenAI(base_url=f"{application.url}/v1", api_key="none")
    before = _stats("Verifier").passes
    for question in QUESTIONS:
        stream = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": question}],
            max_tokens=TOKENS,
            stream=True,
            extra_body={"decoding": {"mode": "prove"}},
        )
        chunks = list(stream)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert chunks[-1].choices[0].finish_reason in ("stop", "length")
    assert _stats("Verifier").passes > before


def test_streamed_and_whole_replies_agree(client: httpx.Client) -> None:
    fields: dict[str, Any] = {"decoding": {"mode": "prove"}}
    chunks = list(_stream(client, stream_options={"include_usage": True}, **fields))
    whole = client.post("/v1/chat/completions", json=_body(**fields)).json()
    assert _joined(chunks) == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    roles = [choice["delta"].get("role") for chunk in chunks for choice in chunk["choices"]]
    assert roles == ["assistant"] + [None] * (len(roles) - 1)
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    assert [reason for reason in reasons if reason] == reasons[-1:] == [whole["choices"][0]["finish_reason"]]


@pytest.mark.parametrize(("fields", "status"), [({}, 200), ({"stream": True}, 200), ({"max_tokens": 0}, 400)])
def test_a_requests_id_comes_back_once(client: httpx.Client, fields: dict[str, Any], status: int) -> None:
    for sent in ({"x-request-id": "mine-1"}, {}):
        reply = client.post("/v1/chat/completions", json=_body(max_tokens=2) | fields, headers=sent)
        assert reply.status_code == status
        (id,) = reply.headers.get_list("x-request-id")
        assert id
        assert not sent or id == "mine-1"


def test_tokens_arrive_one_by_one(client: httpx.Client) -> None:
    """The first are here while the rest, seconds of them, is still to come."""
    stream = _stream(client, max_tokens=2000, ignore_eos=True, decoding={"mode": "ar"})
    assert next(stream)["choices"]
    assert next(stream)["choices"][0]["delta"]["content"]
    assert _stats("Proposer").sessions == 1
    stream.close()
    assert _all_pages_back_within(10)


def test_three_choices_are_equal(client: httpx.Client) -> None:
    chunks = list(_stream(client, n=3, decoding={"mode": "prove"}))
    assert len({_joined(chunks, index) for index in range(3)}) == 1
    assert _joined(chunks, 1) == _ask(client, decoding={"mode": "prove"})
    ends = [choice["index"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]]
    assert sorted(ends) == [0, 1, 2]


@pytest.mark.parametrize(
    ("fields", "status", "word"),
    [
        ({"messages": []}, 400, "messages"),
        ({"model": "nope"}, 404, "nope"),
        ({"max_tokens": 0}, 400, "max_tokens"),
        ({"n": 0}, 400, "n"),
        ({"temperature": -1}, 400, "temperature"),
        ({"top_p": 1.5}, 400, "top_p"),
        ({"tools": [{"type": "function"}]}, 400, "tools"),
        ({"max_tokens": 8192}, 400, "8192"),
        ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
    ],
)
def test_bad_requests_are_refused_by_name(client: httpx.Client, fields: dict[str, Any], status: int, word: str) -> None:
    before = _stats("Proposer").passes
    reply = client.post("/v1/chat/completions", json={**_body(), **fields})
    assert reply.status_code == status
    assert word in reply.json()["error"]["message"]
    assert _stats("Proposer").passes == before


def test_roles_and_text_parts(client: httpx.Client) -> None:
    parts = [{"type": "text", "text": QUESTIONS[0]}]
    system = [{"role": "developer", "content": "Answer in one word."}]
    reply = client.post("/v1/chat/completions", json=_body(messages=[*system, {"role": "user", "content": parts}]))
    assert reply.status_code == 200
    empty = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "?"}]
    assert client.post("/v1/chat/completions", json=_body(messages=empty)).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_clients_that_leave_free_their_pages_on_both_roles(application: Running, stream: bool) -> None:
    async def leave(client: httpx.AsyncClient) -> None:
        fields = _body(stream=stream, max_tokens=2000, ignore_eos=True, decoding={"mode": "prove"})
        try:
            async with asyncio.timeout(1.0), client.stream("POST", "/v1/chat/completions", json=fields) as reply:
                async for _ in reply.aiter_bytes():
                    pass
        except TimeoutError:
            pass

    async def run() -> None:
        async with httpx.AsyncClient(base_url=application.url, timeout=60) as client:
            await asyncio.gather(*(leave(client) for _ in range(20)))

    asyncio.run(run())
    assert _all_pages_back_within(10)


def test_sixteen_at_once_equal_solo(client: httpx.Client) -> None:
    modes = ["ar", "lossless", "prove", "speculative"]
    jobs = [(QUESTIONS[i % 5], modes[i % 4]) for i in range(16)]
    solo = [_ask(client, question, decoding={"mode": mode}) for question, mode in jobs]
    together: dict[int, str] = {}

    def ask(index: int) -> None:
        question, mode = jobs[index]
        together[index] = _ask(client, question, decoding={"mode": mode})

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[index] for index in range(16)] == solo
    assert _all_pages_back_within(10)


@pytest.mark.parametrize(("deployment", "mode"), [("Verifier", "prove"), ("Proposer", "lossless")])
def test_a_killed_replica_changes_no_character_of_a_stream(client: httpx.Client, deployment: str, mode: str) -> None:
    fields: dict[str, Any] = {"decoding": {"mode": mode}, "max_tokens": 48, "ignore_eos": True}
    expected = _ask(client, **fields)
    others = {name: _pid(name) for name in ("Proposer", "Verifier") if name != deployment}
    chunks = []
    for chunk in _stream(client, **fields):
        chunks.append(chunk)
        if len(chunks) == 8:
            os.kill(_pid(deployment), signal.SIGKILL)
    assert _joined(chunks) == expected
    assert {name: _pid(name) for name in others} == others
    assert _ask(client, **fields) == expected
