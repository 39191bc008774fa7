import torch

from prove_core.training.dataset import Example
from prove_core.training.shortlist import Shortlist


def test_rows_of_the_shortened_head_are_those_of_the_ids() -> None:
    head = torch.randn(50, 4)
    shortlist = Shortlist(head, [Example((1, 2), (40, 3, 3)), Example((5,), (7, 40, 49))])
    targets = torch.tensor([[3, 7, -1], [40, 49, -1]])
    rows = shortlist.renumber(targets)
    assert shortlist.head.shape == (4, 4)
    assert torch.equal(rows < 0, targets < 0)
    for row, target in zip(rows.flatten().tolist(), targets.flatten().tolist(), strict=True):
        assert target < 0 or torch.equal(shortlist.head[row], head[target])
