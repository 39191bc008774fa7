"""What is left of blocks, in an engine: whatever rows are walked again, the output is that of AR."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from prove_core.attention.base import LayerSpec
from prove_core.decoding.controller import Controller
from prove_core.decoding.cost import FREE
from prove_core.engine.engine import Engine
from prove_core.engine.job import Job
from prove_core.engine.local import call
from prove_core.engine.many import complete_many
from prove_core.kv.pool import PagePool
from prove_core.kv.sequence import Sequence as Session
from prove_core.kv.storage import KVStorage
from prove_core.model.cache import home
from prove_core.model.fuse import fuse_projections
from prove_core.model.native.forward import NativeForward
from prove_core.model.native.structure import parts
from prove_core.model.probe import probe
from prove_core.model.recall import Recall
from prove_core.model.rows import RowMask
from prove_core.model.runner import ModelRunner
from prove_core.model.sequential import SequentialHead
from prove_core.model.window import PassOutput, Remnant, Runner, Window, WindowOutput
from prove_core.types import (
    Alternative,
    Branch,
    CallRequest,
    Commit,
    DecodingParams,
    Fuse,
    Fused,
    GenerateRequest,
    Limits,
    Mode,
    Propose,
    Reading,
    SamplingParams,
    Step,
    Verify,
)
from tests.core.engine.harness import engine_config, running
from tests.core.model import test_native
from tests.core.model.test_refine import stirred_head
from tests.core.tiny import PAGE_SIZE, VOCABULARY, tiny_model, tiny_runner

IDS = 5  # of few, so that much of what is proposed comes true
RECALL = Recall((2.0, 1.0), 1.0)


class Watched:
    """A runner that counts the windows whose drafts come from what was left alone."""

    def __init__(self, inner: Runner) -> None:
        self._inner = inner
        self.gone_on = 0

    def run(self, windows: Sequence[Window]) -> PassOutput:
        """As the inner one."""
        output = self._inner.run(windows)
        for window, found in zip(windows, output.outputs, strict=True):
            if window.keeps and found.drafts and not window.chosen(found.argmax, found.behind):
                self.gone_on += 1
        return output


def in_torch() -> Watched:
    model = tiny_model(dtype=torch.bfloat16)
    how = {"sequential": stirred_head().to(torch.bfloat16), "recall": RECALL, "deterministic": True}
    return Watched(tiny_runner(model, pages=512, banned=range(IDS, VOCABULARY), **how))  # type: ignore[arg-type]


def in_compiled_code() -> Watched:
    test_native.compiled()
    model = test_native.build("llama")
    specs: list[LayerSpec] = probe(model)
    fuse_projections(model)
    shapes = [spec.shape for spec in specs]
    storage = KVStorage(shapes, pages=512, page_size=PAGE_SIZE, dtype=torch.bfloat16, device="cpu")
    head: SequentialHead = test_native.head(96, 160, torch.bfloat16)
    forward = NativeForward(parts(model, specs), specs, storage, home())
    banned = range(IDS, test_native.VOCABULARY)
    how = {"placeholder_id": 7, "rows": RowMask(), "sequential": head, "recall": RECALL, "deterministic": True}
    return Watched(ModelRunner(model, specs, storage, forward, banned=banned, **how))  # type: ignore[arg-type]


RUNNERS = {"torch": in_torch, "compiled": in_compiled_code}
KINDS = {
    "greedy": lambda _: None,
    "draws": lambda seed: SamplingParams(4, 0.8, seed=seed),
    "penalties": lambda seed: SamplingParams(4, 0.8, seed=seed, frequency_penalty=0.2, repetition_penalty=1.1),
    "mixed": lambda seed: SamplingParams(4, 0.8, seed=seed) if seed % 3 else None,
}


def outputs(engine: Engine, requests: list[GenerateRequest], together: int) -> tuple[list[list[int]], int]:
    """Of each request; and how many candidates were accepted."""
    tokens: list[list[int]] = [[] for _ in requests]
    accepted = 0
    for index, event in complete_many(engine, requests, together):
        if isinstance(event, Step):
            tokens[index] += event.tokens
            accepted += event.accepted
    return tokens, accepted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("where", RUNNERS)
@pytest.mark.parametrize("pages", [512, 40], ids=["roomy", "short"])
def test_the_output_is_that_of_ar(where: str, kind: str, pages: int) -> None:
    """In a short pool sessions lose their KV now and then, and go on."""
    runner, noise = RUNNERS[where](), random.Random(kind)
    config = engine_config(tokens=pages * PAGE_SIZE, page_size=PAGE_SIZE, chunk=5)
    requests = []
    for index in range(12):
        prompt = tuple([noise.randrange(IDS) for _ in range(noise.randint(4, 20))])
        limits = Limits(noise.randint(1, 40), frozenset({IDS - 1} if index % 4 == 0 else ()))
        requests.append(GenerateRequest(f"{index}", prompt, DecodingParams(Mode.AR), limits, KINDS[kind](index)))
    with running(runner, config, Controller(FREE, max_rows=192)) as engine:
        expected, _ = outputs(engine, requests, 4)
        for mode in (Mode.FUSED, Mode.AUTO):
            params = [
                DecodingParams(mode, block_size=noise.choice((2, 3, 5, 8, 16)), fused_rows=noise.randint(1, 40))
                for _ in requests
            ]
            asked = [replace(request, params=own) for request, own in zip(requests, params, strict=True)]
            found, accepted = outputs(engine, asked, 6)
            assert found == expected
            assert accepted > 20
        preempted = engine.stats().preemptions
    assert (runner.gone_on > 0) == (kind != "penalties")
    assert (preempted > 0) == (pages == 40)


@pytest.mark.parametrize("where", RUNNERS)
@pytest.mark.parametrize("seed", range(3))
def test_whatever_calls_a_session_gets_it_says_what_the_model_says(where: str, seed: int) -> None:
    """Commits that cut what was read, blocks right and wrong, other sampling each time, other calls in between."""
    noise, runner = random.Random(seed), RUNNERS[where]()
    config = engine_config(tokens=512 * PAGE_SIZE, page_size=PAGE_SIZE, chunk=4)
    hows = [None, SamplingParams(4), *[make(seed) for name, make in KINDS.items() if name != "mixed"]]
    with running(runner, config) as engine:
        for session in ("a", "b", "c"):
            tokens: list[int] = []
            drafts: tuple[int, ...] = ()
            for cycle in range(1, 25):
                keep = noise.randrange(len(tokens) + 1) if noise.random() < 0.1 else len(tokens)
                more = tuple([noise.randrange(IDS) for _ in range(noise.choice((1, 1, 2, 6)))])
                own = drafts[: len(more)] if noise.random() < 0.5 and drafts else more
                tokens = [*tokens[:keep], *own]
                commit = Commit(session, cycle, keep, own)
                guess = drafts[len(own) :] if noise.random() < 0.5 else more
                block = guess[: noise.randint(0, 4)]
                how = noise.choice(hows)
                stops = noise.sample(range(len(block) + 1), noise.randint(0, len(block) + 1))
                branches = tuple([Branch(stop, noise.randint(1, 6)) for stop in stops])
                sides = (Alternative(0, (noise.randrange(IDS), 1), (0.5, 0.5)),) if block and how is None else ()
                asked = Propose(1) if noise.random() < 0.15 else Fuse(block, branches, sides)
                answer = call(engine, CallRequest(commit, asked, None, how)).answer
                reading = call(engine, CallRequest(Commit("x", 1, 0, tuple(tokens)), Verify(block), None, how)).answer
                engine.release("x")
                if isinstance(answer, Fused) and isinstance(reading, Reading):
                    assert answer.argmax == reading.argmax
                    drafts = answer.drafts
            engine.release(session)
    assert runner.gone_on


def fed(job: Job, remnant: Remnant | None) -> Window:
    """The next window of a job, that has run, with what it leaves."""
    window = job.window(64, 4)
    assert window is not None
    assert job.sequence.reserve(window.length)
    job.absorb(window, WindowOutput((1,) * window.logits, (), (), remnant=remnant), 0.0)
    return window


def test_prefill_in_chunks_keeps_what_is_left_for_the_last_window() -> None:
    """Even of a session that has lost its KV: what is left depends on none."""
    sequence, kept = Session(PagePool(16, 4)), Remnant(11, 3, None)
    sequence.apply(Commit("s", 1, 0, tuple(range(10))))
    sequence.remnant = kept
    job = Job("s", sequence, CallRequest(Commit("s", 1, 0, ()), Fuse((), (Branch(0, 2),))), lambda _: None)
    windows = [fed(job, None) for _ in range(2)]
    assert all(not window.keeps and window.remnant is None for window in windows)
    sequence.release()
    while not (last := fed(job, None)).logits:
        assert sequence.remnant is kept
    assert (last.remnant, list(last.before), sequence.remnant) == (kept, list(range(last.start)), None)


def test_a_call_without_room_for_its_branches_still_goes_on_with_what_is_left() -> None:
    sequence, kept = Session(PagePool(16, 4)), Remnant(3, 3, None)
    sequence.apply(Commit("s", 1, 0, (5, 6, 7)))
    sequence.remnant = kept
    how = SamplingParams(1, presence_penalty=1.0)
    request = CallRequest(Commit("s", 1, 0, ()), Fuse((8,), (Branch(0, 2),), (Alternative(0, (9,), (0.5,)),)))
    job = Job("s", sequence, request, lambda _: None)
    job.drop_extras()
    window = fed(job, kept)
    assert (window.groups, window.sides, window.remnant, sequence.remnant) == ((), (), kept, kept)
    adjusted = fed(Job("s", sequence, replace(request, sampling=how), lambda _: None), None)
    assert (adjusted.keeps, adjusted.remnant, sequence.remnant) == (False, None, kept)
