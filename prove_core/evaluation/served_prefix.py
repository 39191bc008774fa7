"""The AR-matching prefix of what an engine serves: its own proposals against its own greedy answers."""

import queue
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch

from prove_core.engine.engine import Engine
from prove_core.errors import DataError, ProveError
from prove_core.evaluation.prefix import PrefixFigures, anchors_along, figures
from prove_core.training.dataset import Example
from prove_core.types import CallRequest, CallResult, Commit, Proposal, Propose

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
    walks = [walk for t in trajectories if (walk := _Walk(t, anchors_along(t, block_size, stride))).anchors]
    if not walks:
        raise DataError(f"no trajectory has an answer longer than a block of {block_size} tokens")
    events: queue.SimpleQueue[tuple[int, CallResult | ProveError]] = queue.SimpleQueue()
    waiting = iter(range(len(walks)))
    open_walks: set[int] = set()

    def ask(index: int) -> None:
        commit = walks[index].next_commit(f"prefix-{index}")
        engine.call(CallRequest(commit, Propose(block_size)), lambda event: events.put((index, event)))

    def start_next() -> None:
        index = next(waiting, None)
        if index is not None:
            open_walks.add(index)
            ask(index)

    try:
        for _ in range(concurrency):
            start_next()
        while open_walks:
            index, event = events.get()
            if isinstance(event, ProveError):
                raise event
            assert isinstance(event.answer, Proposal)
            if walks[index].note(event.answer):
                ask(index)
                continue
            engine.release(f"prefix-{index}")
            open_walks.remove(index)
            tick()
            start_next()
    finally:
        for index in open_walks:
            engine.release(f"prefix-{index}")
    return figures(torch.tensor([row for walk in walks for row in walk.matches]))


class _Walk:
    """One trajectory's session: a proposal at each anchor, the tokens in between committed on the way."""

    def __init__(self, trajectory: Example, anchors: list[int]) -> None:
        self.anchors = anchors
        self.matches: list[list[bool]] = []
        self._tokens = trajectory.tokens
        self._commits = self._plan()

    def _plan(self) -> Iterator[tuple[int, int]]:
        return pairwise((0, *(anchor + 1 for anchor in self.anchors)))

    def next_commit(self, session: str) -> Commit:
        """The tokens up to the next anchor."""
        keep, end = next(self._commits)
        return Commit(session, len(self.matches) + 1, keep, self._tokens[keep:end])

    def note(self, proposal: Proposal) -> bool:
        """Compare a proposal at the current anchor; says whether there is another."""
        following = self._tokens[self.anchors[len(self.matches)] + 2 :]
        self.matches.append([a == b for a, b in zip(proposal.tokens[1:], following, strict=False)])
        return len(self.matches) < len(self.anchors)
