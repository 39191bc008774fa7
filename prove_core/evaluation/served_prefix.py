"""The AR-matching prefix of what an engine serves: its own proposals against its own greedy answers."""

from collections.abc import Callable, Sequence
from typing import cast

import torch

from prove_core.engine.engine import Engine
from prove_core.engine.local import call
from prove_core.engine.many import in_threads
from prove_core.errors import DataError
from prove_core.evaluation.prefix import PrefixFigures, anchors_along, figures
from prove_core.training.dataset import Example
from prove_core.types import CallRequest, Commit, Proposal, Propose

Tick = Callable[[], None]


def measure_served(
    engine: Engine,
    trajectories: Sequence[Example],
    block_size: int,
    *,
    stride: int = 4,
    concurrency: int = 16,
    tick: Tick = lambda: None,
) -> PrefixFigures:
    """Propose at anchors along `trajectories`: prompts with the greedy answers of the engine's own model.

    `tick` is called once per trajectory. Raises DataError when every answer is shorter than a block, and what the
    engine answers.
    """
    walks = [(t, anchors) for t in trajectories if (anchors := anchors_along(t, block_size, stride))]
    if not walks:
        raise DataError(f"no trajectory has an answer longer than a block of {block_size} tokens")

    def walk(index: int) -> list[list[bool]]:
        return _walk(engine, f"prefix-{index}", *walks[index], block_size)

    matches: list[list[bool]] = []
    for rows in in_threads(walk, len(walks), concurrency):
        matches += rows
        tick()
    return figures(torch.tensor(matches))


def _walk(
    engine: Engine, session: str, trajectory: Example, anchors: Sequence[int], block_size: int
) -> list[list[bool]]:
    """At each anchor, which placeholders propose the trajectory's tokens; what lies between is committed on the way."""
    tokens, known = trajectory.tokens, 0
    matches = []
    try:
        for cycle, anchor in enumerate(anchors, start=1):
            commit = Commit(session, cycle, known, tokens[known : anchor + 1])
            known = anchor + 1
            proposal = cast(Proposal, call(engine, CallRequest(commit, Propose(block_size))).answer)
            following = tokens[anchor + 2 :]
            matches.append([a == b for a, b in zip(proposal.tokens[1:], following, strict=False)])
        return matches
    finally:
        engine.release(session)
