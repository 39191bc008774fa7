"""A light sequential head: placeholders do not see the token realized before them, so their rows are corrected for it.

A placeholder's last hidden state h is computed in the block's one pass, before anybody knows the token that the one
before it will propose. The head adds a small correction that depends on that token, one placeholder after another:

    h' = h + O silu(A norm(h) + B norm(e(previous)) + position_i)
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class SequentialHead(nn.Module):
    """Parameters of the correction for a block of `placeholders` + 1 tokens; a fresh one changes nothing."""

    def __init__(self, hidden: int, width: int, placeholders: int, generator: torch.Generator | None = None) -> None:
        super().__init__()
        bound = hidden**-0.5
        self.a = nn.Parameter(torch.empty(width, hidden).uniform_(-bound, bound, generator=generator))
        self.b = nn.Parameter(torch.empty(width, hidden).uniform_(-bound, bound, generator=generator))
        self.o = nn.Parameter(torch.zeros(hidden, width))
        self.position = nn.Parameter(torch.zeros(placeholders, width))

    def forward(self, hidden: Tensor, previous: Tensor, ordinals: Tensor) -> Tensor:
        """Corrected states in hidden's dtype. All broadcast over leading dimensions.

        hidden [..., H]; previous [..., H], the embeddings of the tokens before; ordinals [...], int64, the place of
        each placeholder in its block from 0; those beyond the trained ones count as the last.
        """
        dtype = hidden.dtype
        position = self.position[ordinals.clamp(max=len(self.position) - 1)].to(dtype)
        inner = functional.linear(_norm(hidden), self.a.to(dtype)) + functional.linear(
            _norm(previous), self.b.to(dtype)
        )
        return hidden + functional.linear(functional.silu(inner + position), self.o.to(dtype))


CANDIDATES = 32  # of a placeholder, by its own logits: what the head may choose from


def choose(logits: Tensor, corrected: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """The best of each row's leading candidates by its corrected state: ids and their probabilities among these.

    logits [rows, vocabulary] are the placeholders' own, -inf where an id must not be chosen; corrected [rows, H];
    output [vocabulary, H] is the model's head. Answers int64 and float32, [rows].
    """
    own, candidates = logits.topk(min(CANDIDATES, logits.shape[-1]), dim=-1)
    scores = torch.einsum("rch,rh->rc", output[candidates], corrected).float()
    scores = scores.masked_fill(own == -torch.inf, -torch.inf)
    best = scores.argmax(-1, keepdim=True)
    probability = torch.softmax(scores, -1).gather(-1, best)
    return candidates.gather(-1, best)[:, 0], probability[:, 0]


def _norm(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:])
