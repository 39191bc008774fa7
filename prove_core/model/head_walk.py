"""The sequential head at inference: what depends on no choice is computed for all placeholders of a pass at once."""

import torch
from torch import Tensor

from prove_core.model.sequential import CANDIDATES, SequentialHead


class HeadWalk:
    """Scores of placeholders' leading candidates, given the tokens chosen before them.

    A candidate's corrected score is its own logit plus what the head's state adds to it, (output O) s: the products of
    output rows and O come first, so that a step down the block is a few products of `width` numbers. Of the rows given,
    hidden [rows, H] are the states and logits [rows, vocabulary] their logits, -inf where an id must not be chosen;
    ordinals [rows] their places in their blocks from 0; output [vocabulary, H] is the model's head.
    """

    def __init__(self, head: SequentialHead, hidden: Tensor, logits: Tensor, ordinals: Tensor, output: Tensor) -> None:
        self._head = head
        self._output = output
        self._prepared = head.prepare(hidden, ordinals)
        self._own, self._ids, self._effects = self._lead(logits, logits)

    def start(self, blocks: int) -> Tensor:
        """The states [blocks, width] before the first placeholder."""
        return self._head.start(self._prepared[:blocks])

    def relead(self, rows: slice, logits: Tensor, ranked: Tensor) -> None:
        """Let `ranked` say which candidates lead in `rows`: penalties depend on what was chosen before.

        Scores still begin with the rows' own `logits`: what penalizes them penalizes corrected scores.
        """
        self._own[rows], self._ids[rows], self._effects[rows] = self._lead(logits, ranked)

    def step(self, rows: slice, previous: Tensor, state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and float32 scores [n, candidates] of `rows`, and the next states [n, width].

        previous [n, H]: embeddings of the tokens before; state [n, width].
        """
        state = self._head.follow(self._prepared[rows], previous, state)
        added = torch.bmm(self._effects[rows], state[:, :, None])[:, :, 0]
        return self._ids[rows], self._own[rows] + added.float(), state

    def _lead(self, logits: Tensor, ranked: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ids = ranked.topk(min(CANDIDATES, ranked.shape[-1]), dim=-1).indices
        return logits.gather(-1, ids).float(), ids, self._output[ids] @ self._head.o.to(self._output.dtype)
