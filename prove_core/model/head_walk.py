"""The sequential head at inference: what depends on no choice is computed for all placeholders of a pass at once."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prove_core.model.sequential import CANDIDATES, SequentialHead


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Of n placeholders: the part of their states [n, width] that depends on no choice, and their leading candidates.

    Of these their `own` float32 logits and `ids`, both [n, candidates], and what states add to them, `effects`
    [n, candidates, width].
    """

    states: Tensor
    own: Tensor
    ids: Tensor
    effects: Tensor

    def __getitem__(self, rows: slice) -> "PreparedRows":
        return PreparedRows(self.states[rows], self.own[rows], self.ids[rows], self.effects[rows])

    def copy(self) -> "PreparedRows":
        """In memory of their own: a slice holds all that it was cut from."""
        return PreparedRows(self.states.clone(), self.own.clone(), self.ids.clone(), self.effects.clone())

    @staticmethod
    def joined(parts: Sequence["PreparedRows"]) -> "PreparedRows":
        """One behind the other."""
        return PreparedRows(
            torch.cat([part.states for part in parts]),
            torch.cat([part.own for part in parts]),
            torch.cat([part.ids for part in parts]),
            torch.cat([part.effects for part in parts]),
        )


class HeadWalk:
    """Scores of placeholders' leading candidates, given the tokens chosen before them.

    A candidate's corrected score is its own logit plus what the head's state adds to it, (output O) s: the products of
    output rows and O come first, so that a step down the block is a few products of `width` numbers. `output`
    [vocabulary, H] is the model's head.
    """

    def __init__(self, head: SequentialHead, output: Tensor) -> None:
        self._head = head
        self._output = output

    def prepare(self, hidden: Tensor, logits: Tensor, ordinals: Tensor) -> PreparedRows:
        """Rows with states hidden [n, H] and logits [n, vocabulary], -inf where an id must not be chosen.

        ordinals [n] are their places in their blocks from 0.
        """
        return PreparedRows(self._head.prepare(hidden, ordinals), *self._lead(logits, logits))

    def start(self, blocks: int) -> Tensor:
        """The states [blocks, width] before the first placeholder."""
        return self._output.new_zeros(blocks, len(self._head.a))

    def relead(self, prepared: PreparedRows, rows: Tensor, logits: Tensor, ranked: Tensor) -> None:
        """Let `ranked` say which candidates lead in `rows`: penalties depend on what was chosen before.

        Scores still begin with the rows' own `logits`: what penalizes them penalizes corrected scores.
        """
        prepared.own[rows], prepared.ids[rows], prepared.effects[rows] = self._lead(logits, ranked)

    def step(
        self, prepared: PreparedRows, rows: Tensor, previous: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Ids and float32 scores [n, candidates] of `rows`, and the next states [n, width].

        previous [n, H]: embeddings of the tokens before; state [n, width].
        """
        state = self._head.follow(prepared.states[rows], previous, state)
        added = torch.bmm(prepared.effects[rows], state[:, :, None])[:, :, 0]
        return prepared.ids[rows], prepared.own[rows] + added.float(), state

    def _lead(self, logits: Tensor, ranked: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ids = ranked.topk(min(CANDIDATES, ranked.shape[-1]), dim=-1).indices
        return logits.gather(-1, ids).float(), ids, self._output[ids] @ self._head.o.to(self._output.dtype)
