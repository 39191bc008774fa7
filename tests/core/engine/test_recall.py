"""A recall in an engine: drafts depend on the whole context, however it came into the session; the output does not."""

import torch

from prove_core.engine.engine import Engine
from prove_core.engine.local import call
from prove_core.model.recall import Recall
from prove_core.model.sequential import SequentialHead
from prove_core.model.window import Runner
from prove_core.types import Branch, CallRequest, Commit, DecodingParams, Fuse, GenerateRequest, Limits, Mode, TokenIds
from tests.core.engine.harness import Stream, engine_config, running
from tests.core.tiny import PAGE_SIZE, tiny_model, tiny_runner

HIDDEN, PAGES = 64, 256
PHRASE = (3, 1, 4, 1, 5, 9, 2, 6)
RECALL = Recall((4.0, 3.0, 2.0), 3.0)
CONFIG = engine_config(tokens=PAGES * PAGE_SIZE, page_size=PAGE_SIZE, chunk=5)


def recalling(recall: Recall | None) -> Runner:
    head = SequentialHead(HIDDEN, 16, 3, torch.Generator().manual_seed(0))
    with torch.no_grad():
        head.o.normal_(std=0.3, generator=torch.Generator().manual_seed(1))
    return tiny_runner(tiny_model(), pages=PAGES, sequential=head.requires_grad_(False), recall=recall)


def fused(engine: Engine, session: str, commits: list[TokenIds], block: TokenIds) -> TokenIds:
    """The drafts of the last of some passes, each of which reads a block behind its commit."""
    known, drafts = 0, ()
    try:
        for cycle, tokens in enumerate(commits, start=1):
            commit = Commit(session, cycle, known, tokens)
            known += len(tokens)
            branches = tuple(Branch(accepted, 3) for accepted in range(len(block) + 1))
            drafts = call(engine, CallRequest(commit, Fuse(block, branches))).answer.drafts  # type: ignore[union-attr]
        return drafts
    finally:
        engine.release(session)


def test_a_context_that_came_piece_by_piece_is_recalled_like_one_that_came_at_once() -> None:
    whole = PHRASE * 4
    block = PHRASE[:2]
    with running(recalling(RECALL), CONFIG) as engine, running(recalling(None), CONFIG) as forgetful:
        for size in (1, 3, 7):
            pieces = [whole[start : start + size] for start in range(0, len(whole), size)]
            assert fused(engine, "pieces", pieces, block) == fused(engine, "whole", [whole], block)
        assert fused(engine, "whole", [whole], block) != fused(forgetful, "whole", [whole], block)


def test_the_output_is_that_of_ar() -> None:
    limits, outputs = Limits(24, frozenset()), []
    with running(recalling(RECALL), CONFIG) as engine:
        for mode in (Mode.AR, Mode.LOSSLESS, Mode.FUSED):
            params = DecodingParams(mode, block_size=4, fused_rows=12)
            outputs.append(Stream(engine, GenerateRequest(mode.value, PHRASE * 2, params, limits)).result().tokens)
    assert outputs[1] == outputs[0]
    assert outputs[2] == outputs[0]
