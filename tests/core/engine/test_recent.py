"""A window of recent values."""

from hypothesis import given
from hypothesis import strategies as st

from prove_core.engine.recent import Recent


@given(st.lists(st.tuples(st.floats(0, 20), st.floats(0, 5)), max_size=60), st.floats(0.01, 1))
def test_quantiles_are_those_of_the_recent_values(values: list[tuple[float, float]], share: float) -> None:
    recent = Recent(10.0)
    for at, value in sorted(values):
        recent.add(value, at)
    kept = [value for at, value in values if at >= 10.0]
    found = recent.quantile(share, 20.0)
    if not kept:
        assert found == 0.0
        return
    assert found in kept
    assert sum(value <= found for value in kept) >= share * len(kept)
    assert sum(value < found for value in kept) < share * len(kept)


def test_only_so_many_are_kept() -> None:
    recent = Recent(10.0, most=3)
    for value in (9.0, 1.0, 2.0, 3.0):
        recent.add(value, 0.0)
    assert recent.quantile(1.0, 0.0) == 3.0
