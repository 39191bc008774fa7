import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prove_core.errors import DataError
from prove_core.evaluation.prefix import anchors_along, figures, measure
from prove_core.training.dataset import Example
from prove_core.training.layout import BlockBatch
from prove_core.training.proposer import Rows
from tests.core.tiny import tiny_model
from tests.core.training.examples import greedy_examples, tiny_proposer


@given(
    st.integers(1, 6).flatmap(
        lambda w: st.lists(st.lists(st.booleans(), min_size=w, max_size=w), min_size=1, max_size=20)
    )
)
def test_figures_against_counting(rows: list[list[bool]]) -> None:
    def prefix(row: list[bool]) -> int:
        return 1 + [*row, False].index(False)

    found = figures(torch.tensor(rows))
    assert found.mean == pytest.approx(sum(map(prefix, rows)) / len(rows), abs=1e-4)
    for i in range(len(rows[0])):
        assert found.match[i] == pytest.approx(sum(row[i] for row in rows) / len(rows), abs=1e-4)
        assert found.survival[i] == pytest.approx(sum(prefix(row) > i + 1 for row in rows) / len(rows), abs=1e-4)
    assert (found.block_size, found.anchors) == (len(rows[0]) + 1, len(rows))


@given(st.integers(1, 5), st.integers(1, 30), st.integers(2, 9), st.integers(1, 4))
def test_every_block_lies_inside_the_answer(prompt: int, answer: int, block_size: int, stride: int) -> None:
    example = Example((0,) * prompt, (0,) * answer)
    anchors = anchors_along(example, block_size, stride)
    assert all(prompt - 1 <= a and a + block_size < prompt + answer for a in anchors)
    assert bool(anchors) == (answer > block_size - 1)


def test_the_stock_model_in_place_of_placeholders_matches_everything() -> None:
    """A proposer whose placeholder rows read the true tokens is the AR model itself: L equals the block size."""
    model = tiny_model()
    trajectories = greedy_examples(model, 4)
    proposer = tiny_proposer(model)
    original = proposer.rows

    def cheating(batch: BlockBatch) -> Rows:
        decoder = model.get_decoder()
        model.config._attn_implementation = "sdpa"
        hidden = decoder(batch.tokens, use_cache=False).last_hidden_state
        rows = batch.positions.clamp(max=batch.tokens.shape[1] - 1)
        true = hidden.gather(1, rows[..., None].expand(-1, -1, hidden.shape[-1])).view(*batch.targets.shape, -1)
        return Rows(true, hidden)

    assert measure(proposer, trajectories, 5, stride=1).mean < 5
    proposer.rows = cheating  # type: ignore[method-assign]
    found = measure(proposer, trajectories, 5, stride=1)
    proposer.rows = original  # type: ignore[method-assign]
    assert found.mean == 5
    assert found.match == (1.0,) * 4
    assert found.anchors == 4 * len(anchors_along(trajectories[0], 5, 1))


def test_answers_too_short_for_a_block_are_an_error() -> None:
    model = tiny_model()
    with pytest.raises(DataError, match="block of 8"):
        measure(tiny_proposer(model), greedy_examples(model, 2, length=5), 8)
