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
        place = torch.tensor(ordinal, device=hidden.device)
        state = self.follow(self.prepare(hidden, place), previous, state)
        return hidden + functional.linear(state, self.o.to(hidden.dtype)), state

    def prepare(self, hidden: Tensor, ordinals: Tensor) -> Tensor:
        """The part of states [..., width] that depends on no choice; `ordinals` broadcast over hidden's dimensions."""
        places = self.position[ordinals.clamp(max=len(self.position) - 1)].to(hidden.dtype)
        return functional.linear(_norm(hidden), self.a.to(hidden.dtype)) + places

    def follow(self, prepared: Tensor, previous: Tensor, state: Tensor) -> Tensor:
        """The next state [..., width], from the prepared part, the embeddings of the tokens before, and the state."""
        dtype = prepared.dtype
        inner = prepared + functional.linear(_norm(previous), self.b.to(dtype))
        return functional.silu(inner + functional.linear(_norm(state), self.r.to(dtype)))

    def along(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """Whole blocks of known tokens: [..., W, H] hidden states and previous embeddings to corrected states."""
        corrected, state = [], self.start(hidden[..., 0, :])
        for ordinal in range(hidden.shape[-2]):
            row, state = self(hidden[..., ordinal, :], previous[..., ordinal, :], ordinal, state)
            corrected.append(row)
        return torch.stack(corrected, dim=-2)


CANDIDATES = 32  # of a placeholder, by its own logits: what the head may choose from


def scored(logits: Tensor, corrected: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's leading candidates and their scores by its corrected state: int64 and float32 [rows, candidates].

    logits [rows, vocabulary] are the placeholders' own, -inf where an id must not be chosen; corrected [rows, H];
    output [vocabulary, H] is the model's head.
    """
    own, candidates = logits.topk(min(CANDIDATES, logits.shape[-1]), dim=-1)
    scores = torch.einsum("rch,rh->rc", output[candidates], corrected).float()
    return candidates, scores.masked_fill(own == -torch.inf, -torch.inf)


def choose(logits: Tensor, corrected: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """The best of each row's candidates, as in `scored`, and its probability among them: int64 and float32 [rows]."""
    candidates, scores = scored(logits, corrected, output)
    best = scores.argmax(-1, keepdim=True)
    probability = torch.softmax(scores, -1).gather(-1, best)
    return candidates.gather(-1, best)[:, 0], probability[:, 0]


def _norm(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:])
