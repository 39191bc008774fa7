"""Penalties and biases on logits, as vLLM has them: see `SamplingParams`."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prove_core.types import SamplingParams

Array = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Occurrences:
    """The ids of a sequence so far, ascending, each with how often it stands in the completion (0: in the prompt)."""

    ids: Array
    generated: Array

    @classmethod
    def of(cls, tokens: Sequence[int], prompt_length: int) -> "Occurrences":
        """Those of `tokens`, the completion beginning at `prompt_length`."""
        ids, places = np.unique(np.array(tokens, dtype=np.int64), return_inverse=True)
        return cls(ids, np.bincount(places[prompt_length:], minlength=len(ids)))

    def then(self, token: int) -> "Occurrences":
        """These and one more token of the completion."""
        place = int(np.searchsorted(self.ids, token))
        if place == len(self.ids) or self.ids[place] != token:
            return Occurrences(np.insert(self.ids, place, token), np.insert(self.generated, place, 1))
        generated = self.generated.copy()
        generated[place] += 1
        return Occurrences(self.ids, generated)


NOTHING = Occurrences(np.empty(0, np.int64), np.empty(0, np.int64))


def adjust(row: Tensor, params: SamplingParams, before: Occurrences) -> None:
    """Change a row of logits (float32 `[vocabulary]`) in place; `before`: the tokens before the one it predicts.

    Ids beyond the row are ignored: a verifier's vocabulary may be narrower.
    """
    width = len(row)
    if params.penalizes:
        known = int(np.searchsorted(before.ids, width))
        ids = torch.from_numpy(before.ids[:known]).to(row.device)
        generated = torch.from_numpy(before.generated[:known]).to(row.device)
        row[ids] = _penalized(row[ids], params, torch.ones_like(ids, dtype=torch.bool), generated)
    bias = [(token, value) for token, value in params.logit_bias if token < width]
    if bias:
        chosen = torch.tensor([token for token, _ in bias], device=row.device)
        row[chosen] += torch.tensor([value for _, value in bias], device=row.device)


def adjust_candidates(scores: Tensor, ids: Tensor, params: SamplingParams, before: Occurrences) -> None:
    """As `adjust`, for the `scores` `[n]` of some `ids` `[n]` alone."""
    candidates = ids.cpu().numpy()
    if params.penalizes and len(before.ids):
        places = np.searchsorted(before.ids, candidates).clip(max=len(before.ids) - 1)
        found = before.ids[places] == candidates
        generated = torch.from_numpy(np.where(found, before.generated[places], 0)).to(scores.device)
        scores.copy_(_penalized(scores, params, torch.from_numpy(found).to(scores.device), generated))
    bias = dict(params.logit_bias)
    if bias:
        scores += torch.tensor([bias.get(token, 0.0) for token in candidates.tolist()], device=scores.device)


def _penalized(logits: Tensor, params: SamplingParams, found: Tensor, generated: Tensor) -> Tensor:
    repetition = params.repetition_penalty
    repeated = torch.where(logits > 0, logits / repetition, logits * repetition)
    logits = torch.where(found, repeated, logits)
    return logits - params.frequency_penalty * generated - params.presence_penalty * (generated > 0)
