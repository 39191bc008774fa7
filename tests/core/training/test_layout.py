import random

from hypothesis import given
from hypothesis import strategies as st

from prove_core.training.dataset import Example
from prove_core.training.layout import NO_TARGET, choose_anchors, lay_out, possible_anchors

ids = st.integers(1, 50)
examples = st.builds(
    lambda p, a: Example(tuple(p), tuple(a)),
    st.lists(ids, min_size=1, max_size=6),
    st.lists(ids, min_size=3, max_size=12),
)


@given(examples, st.integers(1, 20), st.integers(0, 10))
def test_anchors_are_distinct_and_each_predicts_something(example: Example, blocks: int, seed: int) -> None:
    anchors = choose_anchors(example, blocks, random.Random(seed))
    assert anchors == sorted(set(anchors))
    assert len(anchors) == min(blocks, len(possible_anchors(example)))
    for anchor in anchors:
        assert anchor >= len(example.prompt) - 1, "a block never starts inside the prompt"
        assert anchor + 2 < len(example.tokens), "its first placeholder predicts a token of the answer"


@given(st.data(), st.lists(examples, min_size=1, max_size=4), st.integers(2, 9))
def test_layout_against_the_definition(data: st.DataObject, batch: list[Example], block_size: int) -> None:
    anchors = [data.draw(st.lists(st.sampled_from(list(possible_anchors(e))), unique=True)) for e in batch]
    out = lay_out(batch, anchors, block_size)
    visible, width = out.visible(), block_size - 1
    positions = out.positions.view(out.targets.shape)
    for row, example in enumerate(batch):
        tokens = example.tokens
        assert out.tokens[row, : len(tokens)].tolist() == list(tokens)
        for block in range(out.targets.shape[1]):
            if block >= len(anchors[row]):
                assert (out.targets[row, block] == NO_TARGET).all()
                continue
            s = anchors[row][block]
            assert visible[row, block].nonzero().flatten().tolist() == list(range(s + 1)), (
                "sees exactly the tokens up to s"
            )
            for i in range(1, width + 1):
                assert positions[row, block, i - 1] == s + i
                expected = tokens[s + 1 + i] if s + 1 + i < len(tokens) else NO_TARGET
                assert out.targets[row, block, i - 1] == expected
                if expected != NO_TARGET:
                    assert out.previous[row, block, i - 1] == tokens[s + i]


@given(st.lists(examples, min_size=1, max_size=3))
def test_every_row_sees_something(batch: list[Example]) -> None:
    out = lay_out(batch, [[] for _ in batch], 4)
    assert out.visible().any(-1).all(), "a row without keys would be nan"
