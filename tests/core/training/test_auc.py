"""AUC against counting pairs."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from prove_core.errors import DataError
from prove_core.training.auc import auc

PAIRS = st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5]) | st.floats(0, 1), st.booleans()), max_size=30)


@given(PAIRS)
def test_auc_is_the_share_of_pairs_in_order(pairs: list[tuple[float, bool]]) -> None:
    right = [score for score, label in pairs if label]
    wrong = [score for score, label in pairs if not label]
    assume(right and wrong)
    won = sum((r > w) + 0.5 * (r == w) for r in right for w in wrong)
    found = auc([score for score, _ in pairs], [label for _, label in pairs])
    assert found == pytest.approx(won / (len(right) * len(wrong)))


@pytest.mark.parametrize("labels", [[], [True], [False, False]])
def test_one_class_has_no_auc(labels: list[bool]) -> None:
    with pytest.raises(DataError, match="right and wrong"):
        auc([0.5] * len(labels), labels)
