"""What the context says about candidates, against a slow reading of the definition."""

from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prove_core.model.recall import LONGEST, Recall, contexts, match_features

CPU = torch.device("cpu")
FEW = 4  # ids, so that much matches

rows = st.lists(st.lists(st.integers(0, FEW - 1), min_size=1, max_size=25), min_size=1, max_size=4)


def slowly(context: list[int], candidate: int) -> list[float]:
    """Place by place."""
    lengths = {}
    for place in range(1, len(context)):
        lengths[place] = max(
            n for n in range(min(LONGEST, place) + 1) if context[place - n : place] == context[len(context) - n :]
        )
    own = max((length for place, length in lengths.items() if context[place] == candidate), default=0)
    longest = max(lengths.values(), default=0)
    latest = max((place for place, length in lengths.items() if length == longest > 0), default=None)
    return [
        *(float(own >= n) for n in range(1, LONGEST + 1)),
        float(latest is not None and context[latest] == candidate),
    ]


@given(rows, st.randoms(use_true_random=False))
def test_features_are_what_the_definition_says(contents: list[list[int]], random: Random) -> None:
    candidates = [random.sample(range(FEW + 2), 4) for _ in contents]
    found = match_features(contexts(contents, CPU), torch.tensor(candidates), FEW + 2)
    assert found.tolist() == [
        [slowly(context, each) for each in asked] for context, asked in zip(contents, candidates, strict=True)
    ]


@given(st.lists(st.floats(-3, 3, width=32), max_size=LONGEST), st.floats(-3, 3, width=32))
def test_bonuses_add_up(matches: list[float], latest: float) -> None:
    recall = Recall(tuple(matches), latest)
    for length in range(LONGEST + 1):
        for last in (0.0, 1.0):
            features = torch.tensor([float(length >= n) for n in range(1, LONGEST + 1)] + [last])
            expected = sum(matches[:length]) + last * latest
            assert recall.bonuses(features).item() == pytest.approx(expected, abs=1e-5)
            assert recall.totals[length] + last * latest == pytest.approx(expected, abs=1e-5)


def test_more_lengths_than_are_told_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="up to 6"):
        Recall((1.0,) * (LONGEST + 1), 0.0)
