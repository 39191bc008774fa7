"""Which second choices become alternatives to a block."""

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prove_core.model.alternatives import LEAST, MOST, alternatives

places = st.tuples(st.floats(0, 1), st.lists(st.floats(0, 1), max_size=3))


@given(st.lists(places, min_size=1, max_size=8))
def test_the_likeliest_are_kept_and_come_first(block: list[tuple[float, list[float]]]) -> None:
    confidences = [confidence for confidence, _ in block]
    shares = [shares for _, shares in block]
    others = [[(10 * place + rank, share) for rank, share in enumerate(found)] for place, found in enumerate(shares)]
    kept = alternatives(confidences, others)
    reached = [prod(confidences[: other.accepted]) * other.confidences[0] for other in kept]
    assert reached == sorted(reached, reverse=True)
    every = [prod(confidences[:place]) * share for place, found in enumerate(shares) for share in found]
    likely = sorted([chance for chance in every if chance >= LEAST], reverse=True)
    assert reached == pytest.approx(likely[:MOST])
    assert all((other.tokens[0], other.confidences[0]) in others[other.accepted] for other in kept)
