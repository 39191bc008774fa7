"""A light sequential head: placeholders do not see the tokens realized before them, so their rows are corrected.

A placeholder's last hidden state h is computed in the block's one pass, before anybody knows the tokens that those
before it will propose. The head, a small recurrent network, walks down the placeholders and adds a correction that
depends on the token chosen just before and, through its state s, on the earlier ones of the block:

    s_i  = silu(A norm(h_i) + B norm(e(previous_i)) + R norm(s_{i-1}) + position_i),  s_0 = 0
    h_i' = h_i + O s_i
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
        self.r = nn.Parameter(torch.zeros(width, width))
        self.o = nn.Parameter(torch.zeros(hidden, width))
        self.position = nn.Parameter(torch.zeros(placeholders, width))

    def start(self, hidden: Tensor) -> Tensor:
        """The state before the first placeholder: [..., width] of zeros for hidden states [..., H]."""
        return hidden.new_zeros(*hidden.shape[:-1], len(self.a))

    def forward(self, hidden: Tensor, previous: Tensor, ordinal: int, state: Tensor) -> tuple[Tensor, Tensor]:
        """One placeholder of many blocks: corrected states [..., H] in hidden's dtype, and the state that follows.

        hidden [..., H]; previous [..., H], the embeddings of the tokens before; state [..., width]; ordinal: the
        placeholders' place in their blocks from 0; those beyond the trained ones count as the last.
        """
        dtype = hidden.dtype
        inner = functional.linear(_norm(hidden), self.a.to(dtype))
        inner = inner + functional.linear(_norm(previous), self.b.to(dtype))
        inner = inner + functional.linear(_norm(state), self.r.to(dtype))
        state = functional.silu(inner + self.position[min(ordinal, len(self.position) - 1)].to(dtype))
        return hidden + functional.linear(state, self.o.to(dtype)), state

    def along(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """Whole blocks of known tokens: [..., W, H] hidden states and previous embeddings to corrected states."""
        corrected, state = [], self.start(hidden[..., 0, :])
        for ordinal in range(hidden.shape[-2]):
            row, state = self(hidden[..., ordinal, :], previous[..., ordinal, :], ordinal, state)
            corrected.append(row)
        return torch.stack(corrected, dim=-2)


CANDIDATES = 32  # of a placeholder, by its own logits: what the head may choose from


def choose(logits: Tensor, corrected: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """The best of each row's leading candidates by its corrected state: ids and their probabilities among these.

    logits [rows, vocabulary] are the placeholders' own, -inf where an id must not be chosen; corrected [rows, H];
    output [vocabulary, H] is the model's head. Answers int64 and float32, [rows].
    """
    candidates, scores = shortlist(logits, corrected, output)
    best = scores.argmax(-1, keepdim=True)
    probability = torch.softmax(scores, -1).gather(-1, best)
    return candidates.gather(-1, best)[:, 0], probability[:, 0]


def shortlist(logits: Tensor, corrected: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's leading candidates, int64 [rows, n], and their float32 scores by its corrected state; see `choose`."""
    own, candidates = logits.topk(min(CANDIDATES, logits.shape[-1]), dim=-1)
    scores = torch.einsum("rch,rh->rc", output[candidates], corrected).float()
    return candidates, scores.masked_fill(own == -torch.inf, -torch.inf)


def _norm(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:])
