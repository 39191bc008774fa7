"""A model's head computed by all ranks, each for its share of the vocabulary."""

from torch import Tensor, nn
from transformers import PreTrainedModel

from prove_core.model.ranks import Ranks


class SharedHead(nn.Module):
    """Logits of this rank's ids, joined with those of the others.

    `weight` is the whole head's: it is often the embedding's too, and candidates are looked up in it. The share is a
    view of it, so it takes no memory.
    """

    def __init__(self, head: nn.Linear, ranks: Ranks) -> None:
        super().__init__()
        size = head.out_features // ranks.size
        rows = slice(ranks.rank * size, (ranks.rank + 1) * size)
        self.share = nn.Linear(head.in_features, size, bias=head.bias is not None, device="meta")
        self.share.weight = nn.Parameter(head.weight.detach()[rows], requires_grad=False)
        if head.bias is not None:
            self.share.bias = nn.Parameter(head.bias.detach()[rows], requires_grad=False)
        self._weight = head.weight.detach()
        self._ranks = ranks

    @property
    def weight(self) -> Tensor:
        """[vocabulary, hidden]."""
        return self._weight

    def forward(self, x: Tensor) -> Tensor:
        """[..., hidden] -> [..., vocabulary]."""
        return self._ranks.join(self.share(x))


def share_head(model: PreTrainedModel, ranks: Ranks) -> None:
    """Let the ranks compute the head together, in place, if its rows divide. The model must be on its device."""
    head = model.get_output_embeddings()
    if isinstance(head, nn.Linear) and head.out_features % ranks.size == 0:
        model.set_output_embeddings(SharedHead(head, ranks))
